//! Where sandboxes are made and found: this machine.

use std::time::Duration;

use podbay::Sandbox;
use podbay::local::Local;
use podbay::provider::{Cleaned, Listed, Provided, Provider, Query};

use crate::failure::Failure;
use crate::sandbox_options::SandboxOptions;

/// Where sandboxes are made and found.
#[derive(Debug)]
pub struct Place {
    provider: Local,
}

impl Place {
    /// For finding sandboxes.
    ///
    /// # Errors
    /// When their directory can't be used.
    pub fn open() -> Result<Self, Failure> {
        let provider = Local::new().map_err(podbay::Error::from)?;
        Ok(Self { provider })
    }

    /// For making a sandbox.
    ///
    /// # Errors
    /// When the options name something that isn't there.
    pub fn making(options: &SandboxOptions) -> Result<Self, Failure> {
        let place = Self::open()?;
        Ok(Self { provider: place.provider.with(options.local()?) })
    }

    /// Makes a sandbox, or finds the one of that name.
    ///
    /// # Errors
    /// When it can't be made.
    pub async fn make(&self, options: &SandboxOptions, leashed: bool) -> Result<Provided, Failure> {
        Ok(Provider::get_or_create(&self.provider, &options.wanted(leashed)).await?)
    }

    /// Finds a sandbox.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn find(&self, name: &str) -> Result<Sandbox, Failure> {
        Ok(self.provider.reconnect(name).await?.sandbox)
    }

    /// All sandboxes that a query asks for, however many pages they are.
    ///
    /// # Errors
    /// When they can't be listed.
    pub async fn list(&self, mut query: Query) -> Result<Vec<Listed>, Failure> {
        let mut all = Vec::new();
        loop {
            let page = self.provider.list(&query).await?;
            all.extend(page.sandboxes);
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok(all),
            }
        }
    }

    /// Ends a sandbox and removes all of it; whether there was one.
    ///
    /// # Errors
    /// When something of it stays.
    pub async fn delete(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.provider.delete(name).await?)
    }

    /// Removes what is over.
    ///
    /// # Errors
    /// When that can't be found out.
    pub async fn cleanup(&self, max_idle: Option<Duration>) -> Result<Cleaned, Failure> {
        Ok(self.provider.cleanup(max_idle).await?)
    }
}
