//! What the npm package's tests need on a cluster: an account, something to claim, and a way to agent-sandbox's router.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use rig::Cluster;

use super::package;
use crate::programs;
use crate::tools::{run, target_dir, without_rig};

/// The template whose sandboxes the router may reach. The tests know its name.
const ROUTED: &str = "podbay-routed";

/// Access to a cluster, as the tests need it.
pub struct Access {
    kubeconfig: PathBuf,
    /// Of an account that may create namespaces.
    wide_kubeconfig: PathBuf,
    /// Of an account that looks at what Podbay made.
    harness_kubeconfig: PathBuf,
    key: PathBuf,
    router: Forward,
}

impl Access {
    /// Makes an account with the rights that both modes need, and templates and pools in its namespace.
    pub fn new(cluster: &Cluster) -> Result<Self> {
        let tests = package().join("tests");
        let account = cluster.account(&tests.join("roles.yaml"))?;
        let read: serde_json::Value = serde_json::from_str(&account)?;
        let namespace = read["contexts"][0]["context"]["namespace"].as_str().context("the account has no namespace")?;
        run(cluster.kubectl().args(["apply", "--namespace", namespace, "--filename"]).arg(tests.join("pool.yaml")))?;
        let target = target_dir();
        std::fs::create_dir_all(&target)?;
        let (kubeconfig, key) = (target.join("node-kubeconfig"), target.join("node-router-key"));
        std::fs::write(&kubeconfig, account)?;
        let wide_kubeconfig = target.join("node-wide-kubeconfig");
        std::fs::write(&wide_kubeconfig, cluster.account(&tests.join("roles-everywhere.yaml"))?)?;
        let harness_kubeconfig = target.join("node-harness-kubeconfig");
        std::fs::write(&harness_kubeconfig, cluster.account(&tests.join("roles-harness.yaml"))?)?;
        cluster.apply(&routed_template(namespace, &key)?)?;
        Ok(Self { kubeconfig, wide_kubeconfig, harness_kubeconfig, key, router: Forward::to_router(cluster)? })
    }

    /// Tells a program by its environment.
    pub fn tell(&self, program: &mut Command) {
        program.env("TEST_ON_CLUSTER", "1").env("KUBECONFIG", &self.kubeconfig);
        program.env("TEST_WIDE_KUBECONFIG", &self.wide_kubeconfig);
        program.env("TEST_HARNESS_KUBECONFIG", &self.harness_kubeconfig);
        program.env("TEST_ROUTER_URL", &self.router.url).env("TEST_ROUTER_KEY", &self.key);
    }
}

/// The template and the pool that `podbay install` prints for a new key. The account is there already.
fn routed_template(namespace: &str, key: &Path) -> Result<String> {
    let program = programs::command_line()?;
    let podbay = |arguments: &[&str]| podbay(&program, arguments);
    if key.exists() {
        std::fs::remove_file(key)?;
    }
    let key = key.to_str().context("the path of the key isn't UTF-8")?;
    podbay(&["keys", key])?;
    let public = podbay(&["keys", "--public", key])?;
    let mut arguments = vec!["install", "agent-sandbox", "--template", ROUTED, "--replicas", "1", "--router"];
    let namespace = format!("cluster.namespace={namespace}");
    arguments.extend(["--public-key", public.trim(), "--set", &namespace]);
    for setting in ["raw.image=localhost/debian:1", "raw.image_pull_policy=Never", "raw.memory_request=16Mi"] {
        arguments.extend(["--set", setting]);
    }
    let printed = podbay(&arguments)?;
    let wanted = ["\nkind: SandboxTemplate\n", "\nkind: SandboxWarmPool\n"];
    let parts = printed.split("\n---\n").filter(|part| wanted.iter().any(|kind| part.contains(kind)));
    let manifests: Vec<&str> = parts.collect();
    anyhow::ensure!(manifests.len() == wanted.len(), "'podbay install' printed no template or no pool: {printed}");
    Ok(manifests.join("\n---\n"))
}

/// What the command line prints.
fn podbay(program: &Path, arguments: &[&str]) -> Result<String> {
    let mut program = Command::new(program);
    program.args(arguments);
    let output = without_rig(&mut program).stderr(Stdio::inherit()).output().context("can't run podbay")?;
    if !output.status.success() {
        bail!("podbay {} failed ({})", arguments.join(" "), output.status);
    }
    String::from_utf8(output.stdout).context("podbay's output isn't UTF-8")
}

/// A `kubectl port-forward`, until it is dropped.
struct Forward {
    kubectl: Child,
    url: String,
}

impl Forward {
    /// As the README of the replaced package has it for developers' machines.
    fn to_router(cluster: &Cluster) -> Result<Self> {
        let mut kubectl = cluster
            .kubectl()
            .args(["--namespace=agent-sandbox-system", "port-forward", "service/sandbox-router-svc", ":8080"])
            .stdout(Stdio::piped())
            .spawn()
            .context("can't run kubectl")?;
        let mut output = BufReader::new(kubectl.stdout.take().context("kubectl has no output")?);
        let mut forward = Self { kubectl, url: String::new() };
        let mut line = String::new();
        output.read_line(&mut line)?;
        // Forwarding from 127.0.0.1:36325 -> 8080
        let address = line.split_whitespace().nth(2).filter(|_| line.starts_with("Forwarding from 127.0.0.1:"));
        forward.url = format!("http://{}", address.with_context(|| format!("kubectl port-forward says {line:?}"))?);
        // It prints a line for each connection, and must not wait for a reader.
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Ok(forward)
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.kubectl.kill().and_then(|()| self.kubectl.wait());
    }
}
