//! A namespace for one test, and an account that may do there what the test says and nothing else.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::TryStreamExt;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace as NamespaceObject, ServiceAccount};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding};
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::access::Access;
use crate::client::TestCluster;
use crate::cluster::Cluster;

const ACCOUNT: &str = "test";

/// How long the API server may take to accept that a namespace is deleted. A test may have stopped it.
const DELETE_PATIENCE: Duration = Duration::from_secs(5);

/// A rule for an account: what may be done with which resources. Example: `rule("", ["pods"], ["get", "list"])`.
pub fn rule<'a>(
    group: &str,
    resources: impl IntoIterator<Item = &'a str>,
    verbs: impl IntoIterator<Item = &'a str>,
) -> PolicyRule {
    let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect::<Vec<String>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources.into_iter().collect())),
        verbs: owned(verbs.into_iter().collect()),
        ..PolicyRule::default()
    }
}

/// A fresh namespace. It is deleted when dropped.
pub struct Namespace {
    name: String,
    access: Access,
    client: kube::Client,
    cluster: Cluster,
}

impl TestCluster {
    /// Makes a namespace, and in it a service account with just these rules. Pods can be made at once.
    pub async fn namespace(&self, rules: Vec<PolicyRule>) -> Result<Namespace> {
        let admin = self.admin();
        let parameters = PostParams::default();
        let named = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };

        let wanted = NamespaceObject {
            metadata: ObjectMeta { generate_name: Some("test-".to_owned()), ..ObjectMeta::default() },
            ..NamespaceObject::default()
        };
        let made = Api::all(admin.clone()).create(&parameters, &wanted).await.context("cannot create a namespace")?;
        let name = made.metadata.name.context("a namespace without a name")?;

        let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), &name);
        accounts.create(&parameters, &ServiceAccount { metadata: named(ACCOUNT), ..ServiceAccount::default() }).await?;
        let role = Role { metadata: named(ACCOUNT), rules: Some(rules) };
        Api::namespaced(admin.clone(), &name).create(&parameters, &role).await.context("cannot create the role")?;
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": name}],
        }))?;
        Api::namespaced(admin.clone(), &name).create(&parameters, &binding).await.context("cannot bind the role")?;

        let request = TokenRequest {
            spec: Some(TokenRequestSpec { expiration_seconds: Some(24 * 3600), ..TokenRequestSpec::default() }),
            ..TokenRequest::default()
        };
        let token = accounts.create_token_request(ACCOUNT, &parameters, &request).await?;
        let token = token.status.and_then(|status| status.token).context("the API server returned no token")?;
        wait_for_default_account(&accounts).await?;

        let access = self.access(&token, &name)?;
        let client = access.client().await?;
        Ok(Namespace { name, access, client, cluster: Cluster::clone(self) })
    }
}

/// The first pods are refused until a controller made this account. After an outage of the API server, controllers wait for up to a
/// minute before they try it again.
async fn wait_for_default_account(accounts: &Api<ServiceAccount>) -> Result<()> {
    let only = WatchParams::default().fields("metadata.name=default").timeout(120);
    let mut events = Box::pin(accounts.watch(&only, "0").await?);
    while let Some(event) = events.try_next().await? {
        if matches!(event, WatchEvent::Added(_) | WatchEvent::Modified(_)) {
            return Ok(());
        }
    }
    anyhow::bail!("the namespace got no default service account within 120 s: is kube-controller-manager up?")
}

impl Namespace {
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client with the account's rights, in this namespace.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The account's kubeconfig, and clients through other ports.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Deletes the namespace with all in it, and waits until it is gone.
    pub async fn delete(self) -> Result<()> {
        let admin = crate::access::client_of(&self.cluster.kubeconfig()).await?;
        let namespaces: Api<NamespaceObject> = Api::all(admin);
        let only = WatchParams::default().fields(&format!("metadata.name={}", self.name)).timeout(120);
        let mut events = Box::pin(namespaces.watch(&only, "0").await?);
        namespaces.delete(&self.name, &DeleteParams::default()).await?;
        while let Some(event) = events.try_next().await? {
            if matches!(event, WatchEvent::Deleted(_)) {
                return Ok(());
            }
        }
        anyhow::bail!("namespace {} still exists after 120 s", self.name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // A test may end by a panic, and there is no waiting in a destructor for what the API server does by itself. It runs on
        // a thread of its own, because the test's own runtime may be ending, and not by kubectl, which takes longer to start than this.
        let (kubeconfig, name) = (self.cluster.kubeconfig(), self.name.clone());
        let deleted = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime
                .block_on(async { tokio::time::timeout(DELETE_PATIENCE, begin_to_delete(&kubeconfig, &name)).await? })
        });
        let problem = match deleted.join() {
            Ok(Ok(())) => return,
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "deleting it panicked".to_owned(),
        };
        crate::progress::say(&format!("namespace {} couldn't be deleted: {problem}", self.name));
    }
}

/// Asks the API server to delete a namespace, which it may have done already.
async fn begin_to_delete(kubeconfig: &Path, name: &str) -> Result<()> {
    let namespaces: Api<NamespaceObject> = Api::all(crate::access::client_of(kubeconfig).await?);
    match namespaces.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
        other => other.map(drop).map_err(Into::into),
    }
}
