//! Tests that run in the node's network: pods have no address outside of it.

use std::io::Write;

use anyhow::{Context, Result, ensure};

use crate::namespace::Namespace;

/// The namespace to work in, in the process that runs there.
const NAMESPACE: &str = "PODBAY_TEST_INSIDE";

/// The API server's port there.
const API_SERVER: u16 = 6443;

/// The namespace to work in, if this process runs in the node's network. Then `KUBECONFIG` is that of its account.
pub fn inside() -> Option<String> {
    std::env::var(NAMESPACE).ok()
}

impl Namespace {
    /// Runs a test of this program again in the node's network, with this namespace and its account.
    ///
    /// # Errors
    /// When it fails there.
    pub async fn run_test_inside(&self, test: &str) -> Result<()> {
        self.run_test_inside_with(test, &[]).await
    }

    /// The same with more variables in its environment.
    ///
    /// # Errors
    /// When it fails there.
    pub async fn run_test_inside_with(&self, test: &str, environment: &[(&str, &str)]) -> Result<()> {
        let mut kubeconfig = tempfile::NamedTempFile::new()?;
        kubeconfig.write_all(self.access().through(API_SERVER).kubeconfig().as_bytes())?;
        let program = std::env::current_exe()?;
        let mut again = self.cluster().inside(program.to_str().context("a path that isn't UTF-8")?)?;
        again.args(["--exact", test, "--nocapture"]);
        again.env(NAMESPACE, self.name()).env("KUBECONFIG", kubeconfig.path()).envs(environment.iter().copied());
        let output = tokio::task::spawn_blocking(move || again.output()).await??;
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        println!("{said}");
        ensure!(output.status.success() && said.contains("1 passed"), "{test} failed in the node's network");
        Ok(())
    }
}
