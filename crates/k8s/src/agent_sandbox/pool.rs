//! The warm pool that sandboxes are claimed from.

use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams, TypeMeta};
use podbay_client::provider::PoolStatus;

use super::AgentSandbox;
use super::claims::refused;
use super::resources::{NameRef, SandboxClaim, SandboxTemplate, SandboxWarmPool, WarmPoolSpec};
use crate::api::list::list_all;
use crate::api::retry::with_retry;
use crate::error::{Error, Result};
use crate::names::{MANAGED_BY, PODBAY};

/// The pool to claim from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChosenPool {
    pub(super) name: String,
    /// Whether this call created it.
    pub(super) is_new: bool,
}

impl AgentSandbox {
    /// The pool to claim from: the one that is configured, or one with the configured template. One that was found before
    /// isn't looked for again.
    pub(super) async fn pool(&self) -> Result<ChosenPool> {
        let known = |name: &String| ChosenPool { name: name.clone(), is_new: false };
        if let Some(name) = &self.config.warm_pool_name {
            return Ok(known(name));
        }
        let mut found = self.found_pool.lock().await;
        if let Some(name) = found.as_ref() {
            return Ok(known(name));
        }
        let template = self.config.template_name.as_deref().ok_or_else(|| {
            Error::Config(
                "a new sandbox needs a template: set agent_sandbox.template_name or agent_sandbox.warm_pool_name ('kubectl \
                 get sandboxtemplates,sandboxwarmpools' lists them)"
                    .into(),
            )
        })?;
        let (api, all) = (self.pools(), ListParams::default());
        let pools = with_retry(|| api.list(&all)).await;
        let pools = pools.map_err(refused("list warm pools"))?.items;
        let chosen = match choose(&pools, template) {
            Some(name) => ChosenPool { name, is_new: false },
            None => self.create_pool(template).await?,
        };
        *found = Some(chosen.name.clone());
        Ok(chosen)
    }

    /// Forgets the pool that was found: it is gone.
    pub(super) async fn forget_pool(&self) {
        *self.found_pool.lock().await = None;
    }

    /// Creates a pool that keeps no sandbox ready: claims name pools, so that without one a template can't be used.
    async fn create_pool(&self, template: &str) -> Result<ChosenPool> {
        let cluster = &self.claims.cluster;
        let templates: Api<SandboxTemplate> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        // The controller would say the same, later.
        if let Ok(None) = with_retry(|| templates.get_opt(template)).await {
            return Err(Error::TemplateNotFound { template: template.into(), namespace: cluster.namespace.clone() });
        }
        let pool = SandboxWarmPool {
            types: Some(TypeMeta::resource::<SandboxWarmPool>()),
            metadata: ObjectMeta {
                name: Some(template.into()),
                labels: Some([(MANAGED_BY.to_owned(), PODBAY.to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: WarmPoolSpec { replicas: 0, sandbox_template_ref: NameRef { name: template.into() } },
            status: None,
        };
        let pools = self.pools();
        match with_retry(|| async { pools.create(&PostParams::default(), &pool).await }).await {
            Ok(_) => Ok(ChosenPool { name: template.into(), is_new: true }),
            Err(error) if Error::code(&error) == Some(409) => {
                let found = with_retry(|| pools.get(template)).await.map_err(refused("get the warm pool"))?;
                match found.spec.sandbox_template_ref.name == template {
                    true => Ok(ChosenPool { name: template.into(), is_new: true }),
                    false => Err(Error::NoPoolForTemplate { template: template.into(), yaml: yaml(template) }),
                }
            }
            Err(error) if Error::code(&error) == Some(403) => {
                Err(Error::NoPoolForTemplate { template: template.into(), yaml: yaml(template) })
            }
            Err(error) => Err(refused("create a warm pool")(error)),
        }
    }

    /// The template of a pool, for a message.
    pub(super) async fn template_of(&self, pool: &str, message: &str) -> String {
        let configured = self.config.template_name.clone();
        match configured {
            Some(template) if self.config.warm_pool_name.is_none() => template,
            _ => match self.pools().get_opt(pool).await {
                Ok(Some(found)) => found.spec.sandbox_template_ref.name,
                _ => message.trim().to_owned(),
            },
        }
    }

    pub(super) fn pools(&self) -> Api<SandboxWarmPool> {
        let cluster = &self.claims.cluster;
        Api::namespaced(cluster.client.clone(), &cluster.namespace)
    }

    /// Whether a template or a pool is configured, so that sandboxes can be created.
    pub(super) fn has_pool(&self) -> bool {
        self.config.warm_pool_name.is_some() || self.config.template_name.is_some()
    }

    /// How full the pool is.
    pub(super) async fn read_pool_status(&self) -> Result<PoolStatus> {
        let name = self.pool().await?.name;
        let pools = self.pools();
        let pool = with_retry(|| pools.get_opt(&name)).await.map_err(refused("get the warm pool"))?;
        let namespace = self.claims.cluster.namespace.clone();
        let pool = pool.ok_or_else(|| Error::WarmPoolNotFound { pool: name.clone(), namespace })?;
        let claims = list_all(&self.claims.api, "", "list claims").await?;
        let uses = |claim: &&SandboxClaim| claim.spec.warm_pool_ref.name == name && claim.sandbox().is_some();
        let active = claims.iter().filter(uses).count();
        let count = |number: i32| usize::try_from(number).unwrap_or(0);
        let status = pool.status.unwrap_or_default();
        Ok(PoolStatus {
            available: count(status.ready_replicas),
            active,
            total: count(status.replicas) + active,
            target: count(pool.spec.replicas),
        })
    }
}

/// The pool for a template: of several the one named like it, else the largest, else the first by name.
fn choose(pools: &[SandboxWarmPool], template: &str) -> Option<String> {
    let fitting = pools
        .iter()
        .filter(|pool| pool.spec.sandbox_template_ref.name == template && pool.metadata.deletion_timestamp.is_none());
    let best = fitting.min_by_key(|pool| {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        (name != template, std::cmp::Reverse(pool.spec.replicas), name.to_owned())
    })?;
    best.metadata.name.clone()
}

/// The pool that is missing, for somebody with more rights.
fn yaml(template: &str) -> String {
    format!(
        "apiVersion: extensions.agents.x-k8s.io/v1beta1\nkind: SandboxWarmPool\nmetadata: {{name: {template}}}\nspec:\n  \
         replicas: 0\n  sandboxTemplateRef: {{name: {template}}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_pools_the_one_named_like_the_template_is_chosen() {
        let pool = |name: &str, template: &str, replicas: i32| SandboxWarmPool {
            metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
            spec: WarmPoolSpec { replicas, sandbox_template_ref: NameRef { name: template.into() } },
            ..SandboxWarmPool::default()
        };
        let pools = [pool("big", "python", 9), pool("other", "node", 20), pool("also-big", "python", 9)];
        assert_eq!(choose(&pools, "python").as_deref(), Some("also-big"));
        assert_eq!(choose(&pools, "ruby"), None);
        let named = [pools.as_slice(), &[pool("python", "python", 0)]].concat();
        assert_eq!(choose(&named, "python").as_deref(), Some("python"));
    }
}
