//! A namespace and an account for tests that aren't written in Rust.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::cluster::Cluster;
use crate::pki::{self, Pki};
use crate::process::output;

impl Cluster {
    /// Makes a namespace and an account with the roles of a manifest file, and gives its kubeconfig. The file has one or
    /// more objects of kind `Role`, without a namespace, or `ClusterRole`. Everything goes away with the namespace, but for
    /// the cluster's roles.
    pub fn account(&self, roles: &Path) -> Result<String> {
        // Names need not be secret, only different.
        let namespace = format!("test-{:08x}", RandomState::new().build_hasher().finish() & 0xffff_ffff);
        self.run(&["create", "namespace", &namespace])?;
        let account = self.fill(&namespace, roles);
        if account.is_err() {
            self.run(&["delete", "namespace", &namespace, "--wait=false"])?;
        }
        account
    }

    fn fill(&self, namespace: &str, roles: &Path) -> Result<String> {
        let within = format!("--namespace={namespace}");
        let applied = output(self.kubectl().args([&within, "apply", "-o", "name", "-f"]).arg(roles))
            .with_context(|| format!("cannot apply {}", roles.display()))?;
        self.run(&[&within, "create", "serviceaccount", "test"])?;
        for object in applied.lines() {
            let role = object.split_once(".rbac.authorization.k8s.io/");
            let role = role.filter(|(kind, _)| ["role", "clusterrole"].contains(kind));
            let (kind, role) = role.with_context(|| format!("{} has {object}, which isn't a Role", roles.display()))?;
            self.bind(kind, role, namespace)?;
        }
        let token = self.run(&[&within, "create", "token", "test", "--duration=24h"])?;
        // The first pods are refused until a controller made this one.
        self.run(&[&within, "wait", "--for=create", "serviceaccount/default", "--timeout=30s"])?;
        ensure!(!token.trim().is_empty(), "the API server returned no token");
        let authority = Pki::at(self.directory().join("pki")).authority()?;
        Ok(pki::kubeconfig(&self.server(), &authority, token.trim(), Some(namespace)))
    }

    /// Gives a role to the account. The namespace owns the binding, wherever that is.
    fn bind(&self, kind: &str, role: &str, namespace: &str) -> Result<()> {
        let kind = if kind == "role" { "Role" } else { "ClusterRole" };
        let uid = self.run(&["get", "namespace", namespace, "--output=jsonpath={.metadata.uid}"])?;
        let owner = json!({"apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": uid});
        let mut metadata = json!({"name": format!("{namespace}-{role}")});
        match kind {
            "Role" => metadata["namespace"] = namespace.into(),
            _ => metadata["ownerReferences"] = json!([owner]),
        }
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "test", "namespace": namespace}],
        });
        self.apply(&binding.to_string())
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        output(self.kubectl().args(arguments))
    }
}
