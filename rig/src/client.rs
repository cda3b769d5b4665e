//! What a test begins with: a cluster to use, or a reason to be left out.

use std::collections::BTreeSet;
use std::ops::Deref;

use anyhow::{Context, Result, bail};

use crate::access::{self, Access};
use crate::addon::AddOn;
use crate::availability::{Decision, decision};
use crate::cluster::{Cluster, default_name};
use crate::pki::Pki;

/// A cluster, and a client for it as the administrator.
#[derive(Clone)]
pub struct TestCluster {
    cluster: Cluster,
    admin: kube::Client,
}

/// The cluster for tests: [`default_name`]. It is started when it isn't up, and stays up for
/// the next test binary. `None` means that the test is to be left out; the reason has been printed.
pub async fn cluster() -> Result<Option<TestCluster>> {
    cluster_with(&[]).await
}

/// Like [`cluster`], with at least these add-ons.
pub async fn cluster_with(add_ons: &[AddOn]) -> Result<Option<TestCluster>> {
    cluster_named(&default_name(), add_ons).await
}

/// Like [`cluster_with`], for a test that wants a cluster of its own and ends it with [`Cluster::down`].
pub async fn cluster_named(name: &str, add_ons: &[AddOn]) -> Result<Option<TestCluster>> {
    match decision() {
        Decision::Run => {}
        Decision::LeaveOut(reason) => {
            crate::progress::say(&reason);
            return Ok(None);
        }
        Decision::Refuse(reason) => bail!(reason),
    }
    let (name, add_ons): (String, BTreeSet<AddOn>) = (name.to_owned(), add_ons.iter().copied().collect());
    let cluster = tokio::task::spawn_blocking(move || Cluster::up(&name, &add_ons)).await??;
    let admin = access::client_of(&cluster.kubeconfig()).await?;
    Ok(Some(TestCluster { cluster, admin }))
}

impl TestCluster {
    /// A client that may do everything: for a test's own set-up, not for what it tests.
    pub fn admin(&self) -> kube::Client {
        self.admin.clone()
    }

    /// How to reach this cluster with a token of one's own.
    pub fn access(&self, token: &str, namespace: &str) -> Result<Access> {
        let authority = Pki::at(self.directory().join("pki")).authority().context("no certificate authority")?;
        Ok(Access::new(self.server(), authority, token.to_owned(), namespace.to_owned()))
    }
}

impl Deref for TestCluster {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}
