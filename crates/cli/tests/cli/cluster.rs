//! A namespace of a real cluster, set up with what `podbay install raw` prints, and the `podbay` command with the account
//! that it made.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Api;
use kube::api::{ListParams, PostParams};

use crate::home::{podbay, text};

/// The namespace goes when this is dropped, with everything else that was installed.
pub struct Site {
    pub cluster: rig::TestCluster,
    pub namespace: String,
    manifests: String,
    dir: tempfile::TempDir,
}

impl Site {
    /// Nothing where no cluster can run; why has been printed.
    pub async fn new(name: &str, install: &[&str]) -> Result<Option<Self>> {
        let Some(cluster) = rig::cluster().await? else { return Ok(None) };
        let namespace = format!("cli-{name}-{}", std::process::id());
        let dir = tempfile::tempdir()?;
        let mut words = vec!["install", "raw", "--namespace", &namespace];
        words.extend(install);
        let printed = Command::new(env!("CARGO_BIN_EXE_podbay")).args(&words).output()?;
        ensure!(printed.status.success(), "{}", text(&printed.stderr));
        let site = Self { cluster, namespace, manifests: text(&printed.stdout), dir };
        site.kubectl(&["apply", "-f", "-"], &site.manifests)?;
        site.kubectl(&["wait", "--for=create", "serviceaccount/default", "-n", &site.namespace, "--timeout=30s"], "")?;

        let accounts: Api<ServiceAccount> = Api::namespaced(site.cluster.admin(), &site.namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { expiration_seconds: Some(3600), ..TokenRequestSpec::default() }),
            ..TokenRequest::default()
        };
        let token = accounts.create_token_request("podbay", &PostParams::default(), &request).await?;
        let token = token.status.and_then(|status| status.token).context("the API server returned no token")?;
        let kubeconfig = site.cluster.access(&token, &site.namespace)?.kubeconfig();
        std::fs::write(site.dir.path().join("kubeconfig"), kubeconfig)?;
        Ok(Some(site))
    }

    /// As the administrator.
    pub fn kubectl(&self, words: &[&str], input: &str) -> Result<String> {
        let mut kubectl = self.cluster.kubectl();
        let mut child =
            kubectl.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "kubectl {words:?}: {}", text(&output.stderr));
        Ok(text(&output.stdout))
    }

    pub fn podbay(&self, words: &[&str]) -> Command {
        let mut command = podbay();
        command.args(words).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("PODBAY_MODE", "raw").env("PODBAY_CLUSTER_KUBECONFIG", self.dir.path().join("kubeconfig"));
        command.env("PODBAY_RAW_IMAGE", rig::DEBIAN).env("PODBAY_RAW_IMAGE_PULL_POLICY", "Never");
        command.env("PODBAY_RAW_CPU_REQUEST", "10m").env("PODBAY_RAW_MEMORY_REQUEST", "16Mi");
        command
    }

    pub fn output(&self, words: &[&str]) -> Output {
        self.podbay(words).output().unwrap()
    }

    /// What a command prints that has to succeed.
    pub fn says(&self, words: &[&str]) -> Result<String> {
        let output = self.output(words);
        ensure!(output.status.success(), "{words:?}: {}{}", text(&output.stdout), text(&output.stderr));
        Ok(text(&output.stdout))
    }

    /// Pods that aren't being deleted.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.admin(), &self.namespace);
        let mut pods = pods.list(&ListParams::default()).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    pub fn leases(&self) -> Result<String> {
        self.kubectl(&["get", "leases", "-n", &self.namespace, "-o", "name"], "")
    }

    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let delete = ["delete", "--ignore-not-found", "--wait=false", "-f", "-"];
        if let Err(error) = self.kubectl(&delete, &self.manifests) {
            eprintln!("the namespace stays: {error}");
        }
    }
}
