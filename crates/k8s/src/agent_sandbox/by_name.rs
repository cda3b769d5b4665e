//! Sandboxes that exist, for clients without rights on the cluster: the router finds them by the name of their Sandbox.
//!
//! What such a client can't do: create, list, describe, suspend or delete sandboxes, or extend the lifetime of those that
//! it uses.

use podbay_client::Sandbox as Handle;
use podbay_client::provider::Provided;

use super::AgentSandbox;
use super::claims::{is_ours, not_ours};
use crate::channel::by_name::NamedChannel;
use crate::channel::sandbox_name::SandboxName;
use crate::error::{Error, Result};
use crate::names;

impl AgentSandbox {
    /// Refuses what the router alone can't do. `right` is the verb and the resource.
    pub(super) fn needs_api(&self, what: &'static str, right: &'static str) -> Result<()> {
        match self.config.router_only {
            true => Err(Error::NeedsKubernetes { what, right }),
            false => Ok(()),
        }
    }

    /// Finds a sandbox that exists, with the rights that this client has.
    pub(super) async fn attach(&self, name: &str) -> Result<Provided> {
        if self.config.router_only {
            return self.attach_by_name(name, self.sandbox_of(name)).await;
        }
        let denied = match self.find(name).await {
            Err(error @ Error::PermissionDenied { .. }) if self.is_through_router() => error,
            found => return found,
        };
        let sandbox = match self.claims.get(name).await {
            Ok(Some(claim)) if !is_ours(&claim) && !self.config.foreign_claims => return Err(not_ours(name)),
            Ok(Some(claim)) => claim.sandbox().ok_or(denied)?.to_owned(),
            Ok(None) => return Err(Error::SandboxNotFound(name.to_owned())),
            // Whose claim it is can't be seen, so that must not matter.
            Err(Error::PermissionDenied { .. }) if self.config.foreign_claims => self.sandbox_of(name).to_owned(),
            Err(error) => return Err(error),
        };
        tracing::info!(%sandbox, "this account may not read the sandbox's pod; asking the router to find it by name");
        self.attach_by_name(name, &sandbox).await
    }

    /// The name of the Sandbox of a claim that can't be read: the claim's own, unless a setting says otherwise.
    fn sandbox_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.config.sandbox_names.get(name).map_or(name, String::as_str)
    }

    /// The Sandbox that an id means to a client that may not read claims.
    pub(crate) fn name_of(&self, id: &str) -> Result<SandboxName> {
        self.sandbox_name(self.sandbox_of(names::of_id(id, self.claims.cluster.namespace())?))
    }

    fn sandbox_name(&self, name: &str) -> Result<SandboxName> {
        names::check_label("Sandbox", name)?;
        Ok(SandboxName {
            namespace: self.claims.cluster.namespace.clone(),
            name: name.to_owned(),
            container: self.config.container.clone(),
        })
    }

    async fn attach_by_name(&self, id: &str, sandbox: &str) -> Result<Provided> {
        let Some(addresses) = self.addresses.as_ref() else {
            return Err(Error::Config("agent_sandbox.router_only needs cluster.private_key_file".into()));
        };
        let channel = NamedChannel::open_first(addresses, self.sandbox_name(sandbox)?).await?;
        let sandbox = Handle::new(channel).with_env(self.config.env.clone());
        sandbox.hello().await.map_err(Error::Unusable)?;
        Ok(Provided { id: id.to_owned(), sandbox, created: false, resumed: false, launch: None, leash: None })
    }

    fn is_through_router(&self) -> bool {
        self.addresses.as_ref().is_some_and(|addresses| addresses.is_through_router())
    }
}
