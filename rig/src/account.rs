//! A namespace and an account for tests that aren't written in Rust.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::cluster::Cluster;
use crate::pki::{self, Pki};
use crate::process::output;

impl Cluster {
    /// Makes a namespace and an account with the roles of a manifest file, and gives its kubeconfig. The file has one or
    /// more objects of kind `Role`, without a namespace. Everything goes away with the namespace.
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
            let role = object.strip_prefix("role.rbac.authorization.k8s.io/");
            let role = role.with_context(|| format!("{} has {object}, which is no Role", roles.display()))?;
            let (role, subject) = (format!("--role={role}"), format!("--serviceaccount={namespace}:test"));
            self.run(&[&within, "create", "rolebinding", role.trim_start_matches("--role="), &role, &subject])?;
        }
        let token = self.run(&[&within, "create", "token", "test", "--duration=24h"])?;
        // The first pods are refused until a controller made this one.
        self.run(&[&within, "wait", "--for=create", "serviceaccount/default", "--timeout=30s"])?;
        ensure!(!token.trim().is_empty(), "the API server gave no token");
        let authority = Pki::at(self.directory().join("pki")).authority()?;
        Ok(pki::kubeconfig(&self.server(), &authority, token.trim(), Some(namespace)))
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        output(self.kubectl().args(arguments))
    }
}
