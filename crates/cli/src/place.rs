//! Where sandboxes are made and found, and what may be done in them.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use podbay::Guarded;
use podbay::audit::Audit;
use podbay::config::Config;
use podbay::description::Description;
use podbay::policy::Policy;
use podbay::provider::{Cleaned, Listed, PoolStatus, Provided, Provider, Query, Wanted};

use crate::failure::Failure;
use crate::settings::Settings;

/// Where sandboxes are made and found. What comes from here obeys the policy and is recorded.
pub struct Place {
    provider: Arc<dyn Provider>,
    policy: Policy,
    audit: Audit,
}

/// A sandbox that was made, or found under the name that was wanted.
pub struct Made {
    /// Its name.
    pub id: String,
    /// The sandbox.
    pub sandbox: Guarded,
    /// Whether it was made just now.
    pub created: bool,
    /// What has to live as long as a leashed sandbox: it ends when this is dropped.
    _leash: Option<Box<dyn Any + Send + Sync>>,
}

impl Place {
    /// The place that the settings name.
    ///
    /// # Errors
    /// When a setting makes no sense, or the place can't be used.
    pub async fn open(settings: &Settings) -> Result<Self, Failure> {
        Self::of(&settings.config()?).await
    }

    /// The same for settings that are known already.
    ///
    /// # Errors
    /// When a setting makes no sense, or the place can't be used.
    pub async fn of(config: &Config) -> Result<Self, Failure> {
        // The record first: where it is strict and can't be kept, nothing happens.
        let audit = config.audit()?;
        let provider = config.provider().await?;
        Ok(Self { provider, policy: config.policy(), audit })
    }

    /// Makes a sandbox, or finds the one of that name.
    ///
    /// # Errors
    /// When it can't be made.
    pub async fn make(&self, wanted: &Wanted) -> Result<Made, Failure> {
        let Provided { id, sandbox, created, leash } = self.provider.get_or_create(wanted).await?;
        let sandbox = Guarded::new(sandbox, &id, self.policy.clone(), self.audit.clone());
        Ok(Made { id, sandbox, created, _leash: leash })
    }

    /// Finds a sandbox.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn find(&self, name: &str) -> Result<Guarded, Failure> {
        let found = self.provider.reconnect(name).await?;
        Ok(Guarded::new(found.sandbox, found.id, self.policy.clone(), self.audit.clone()))
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

    /// The mode's name.
    pub fn mode(&self) -> &'static str {
        self.provider.mode()
    }

    /// Describes a sandbox in full.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn describe(&self, name: &str) -> Result<Description, Failure> {
        Ok(self.provider.describe(name).await?)
    }

    /// Ends a sandbox and removes all of it; whether there was one.
    ///
    /// # Errors
    /// When something of it stays.
    pub async fn delete(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.provider.delete(name).await?)
    }

    /// How full the pool is.
    ///
    /// # Errors
    /// When that can't be found out.
    pub async fn pool(&self) -> Result<PoolStatus, Failure> {
        Ok(self.provider.pool_status().await?)
    }

    /// Fills the pool.
    ///
    /// # Errors
    /// When there is none, or it can't be filled.
    pub async fn fill_pool(&self) -> Result<PoolStatus, Failure> {
        Ok(self.provider.refill().await?)
    }

    /// Removes what is over.
    ///
    /// # Errors
    /// When that can't be found out.
    pub async fn cleanup(&self, max_idle: Option<Duration>) -> Result<Cleaned, Failure> {
        Ok(self.provider.cleanup(max_idle).await?)
    }
}
