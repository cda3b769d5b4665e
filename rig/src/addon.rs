//! What a cluster has only when asked: each can be added to one that runs already.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::cluster::{Cluster, link_program, write_file};
use crate::image;
use crate::process::output;
use crate::progress::Step;
use crate::toolchain;

/// Something to add to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddOn {
    /// CRDs, controller and router of kubernetes-sigs/agent-sandbox, with a template and a warm pool, both called
    /// `python`, in the namespace `default`.
    AgentSandbox,
    /// The RuntimeClass `gvisor`.
    Gvisor,
    /// Upstream's other router, in Python: the Service `python-router` in the namespace `agent-sandbox-system`, which wants
    /// the token `rig`. Needs [`AddOn::AgentSandbox`].
    PythonRouter,
    /// The CRDs of the Gateway API. No controller: a test writes a Gateway's status itself.
    GatewayApi,
}

impl AddOn {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::AgentSandbox, Self::PythonRouter, Self::Gvisor, Self::GatewayApi];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::AgentSandbox => "agent-sandbox",
            Self::PythonRouter => "python-router",
            Self::Gvisor => "gvisor",
            Self::GatewayApi => "gateway-api",
        }
    }

    pub(crate) fn install(self, cache: &Cache, cluster: &Cluster) -> Result<()> {
        let step = Step::begin(format!("adding {self}"));
        let installed = match self {
            Self::AgentSandbox => agent_sandbox(cluster),
            Self::PythonRouter => python_router(cluster),
            Self::Gvisor => gvisor(cache, cluster),
            Self::GatewayApi => gateway_api(cluster),
        };
        installed.with_context(|| format!("cannot add {self} to cluster {}", cluster.name()))?;
        step.done();
        Ok(())
    }
}

impl fmt::Display for AddOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AddOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|add_on| add_on.name() == text)
            .ok_or_else(|| format!("unknown add-on {text:?}; use one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// A template and a pool of the stock Python runtime, for `kubectl apply` in any namespace.
const WARM_POOL: &str = include_str!("../manifests/warm-pool.yaml");

/// Upstream's own manifests, with our images for theirs.
fn agent_sandbox(cluster: &Cluster) -> Result<()> {
    let images = image::agent_sandbox()?;
    let upstream = toolchain::upstream("agent-sandbox", "sigs.k8s.io/agent-sandbox")?;
    cluster.add_images(&images)?;

    let controller = output(cluster.kubectl().arg("kustomize").arg(upstream.join("k8s")))?;
    cluster.apply(&with_image(&controller, "cmd/agent-sandbox-controller", "localhost/agent-sandbox-controller:1")?)?;

    let mut router = String::new();
    for name in ["serviceaccount", "rbac", "service", "deployment"] {
        let file = upstream.join("sandbox-router/deploy").join(name).with_extension("yaml");
        router += &std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        router += "\n---\n";
    }
    // One replica is enough here; a probe each second because tests wait for it.
    let changes = [("replicas: 2", "replicas: 1"), ("cpu: 250m", "cpu: 50m"), ("periodSeconds: 5", "periodSeconds: 1")];
    let router = with_image(&router, "agent-sandbox/sandbox-router-go", "localhost/sandbox-router:1")?;
    cluster.apply(&replaced(&router, &changes)?)?;
    cluster.apply(WARM_POOL)?;
    let wait = ["--namespace=agent-sandbox-system", "rollout", "status", "deployment", "--timeout=90s"];
    output(cluster.kubectl().args(wait)).context("the controller or the router didn't become ready")?;
    let ready = ["wait", "sandboxwarmpool/python", "--for=jsonpath={.status.readyReplicas}=1", "--timeout=90s"];
    output(cluster.kubectl().args(["--namespace=default"]).args(ready)).context("the warm pool didn't fill").map(drop)
}

fn python_router(cluster: &Cluster) -> Result<()> {
    cluster.add_images(&[image::python_router()?])?;
    cluster.apply(include_str!("../manifests/python-router.yaml"))?;
    let wait = ["--namespace=agent-sandbox-system", "rollout", "status", "deployment/python-router", "--timeout=90s"];
    output(cluster.kubectl().args(wait)).context("the router didn't become ready").map(drop)
}

/// Puts an image in the place of the one that contains `theirs`.
fn with_image(manifests: &str, theirs: &str, ours: &str) -> Result<String> {
    let is_theirs = |line: &&str| line.trim_start().starts_with("image:") && line.contains(theirs);
    ensure!(manifests.lines().any(|line| is_theirs(&line)), "upstream's manifests no longer have the image {theirs:?}");
    let changed = manifests.lines().map(|line| match line.find("image:") {
        Some(indent) if is_theirs(&line) => format!("{}image: {ours}\n", &line[..indent]),
        _ => format!("{line}\n"),
    });
    Ok(changed.collect())
}

fn replaced(text: &str, changes: &[(&str, &str)]) -> Result<String> {
    changes.iter().try_fold(text.to_owned(), |text, (from, to)| {
        ensure!(text.contains(from), "upstream's manifests no longer have {from:?}");
        Ok(text.replace(from, to))
    })
}

fn gvisor(cache: &Cache, cluster: &Cluster) -> Result<()> {
    let bin = cluster.programs();
    for program in [toolchain::RUNSC, toolchain::RUNSC_SHIM] {
        link_program(&program.file(cache)?, &bin)?;
    }
    let wrapper = include_str!("../node/containerd-shim-runsc-v1");
    write_file(&bin.join("containerd-shim-runsc-v1"), wrapper, true)?;
    cluster.apply(include_str!("../manifests/gvisor.yaml"))
}

fn gateway_api(cluster: &Cluster) -> Result<()> {
    let upstream = toolchain::upstream("gateway-api", "sigs.k8s.io/gateway-api")?;
    cluster.apply_directory(&upstream.join("config/crd/standard"))?;
    let wait = ["wait", "--for=condition=Established", "--timeout=30s", "crd/gateways.gateway.networking.k8s.io"];
    output(cluster.kubectl().args(wait)).map(drop)
}

impl Cluster {
    /// Adds a template and a warm pool of the stock Python runtime to a namespace, both called `python`.
    /// Needs [`AddOn::AgentSandbox`].
    pub fn add_warm_pool(&self, namespace: &str, replicas: u32) -> Result<()> {
        let manifests = WARM_POOL
            .replace("namespace: default", &format!("namespace: {namespace}"))
            .replace("replicas: 1", &format!("replicas: {replicas}"));
        self.apply(&manifests)
    }

    /// Applies every manifest of a directory.
    fn apply_directory(&self, directory: &Path) -> Result<()> {
        output(self.kubectl().args(["apply", "--server-side", "-f"]).arg(directory)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_lists_those_that_are() {
        assert_eq!("gvisor".parse::<AddOn>(), Ok(AddOn::Gvisor));
        let error = "gvisr".parse::<AddOn>().unwrap_err();
        assert!(error.contains("agent-sandbox, python-router, gvisor, gateway-api"), "{error}");
    }

    #[test]
    fn a_manifest_that_changed_upstream_is_an_error() {
        assert_eq!(replaced("a: 1", &[("a: 1", "a: 2")]).unwrap(), "a: 2");
        assert!(replaced("a: 3", &[("a: 1", "a: 2")]).is_err());
        let manifest = "# image: there/router:1\n  image: there/router:1 # note\n  image: other\n";
        let changed = "# image: there/router:1\n  image: ours\n  image: other\n";
        assert_eq!(with_image(manifest, "there/router", "ours").unwrap(), changed);
        assert!(with_image("image: other\n", "there/router", "ours").is_err());
    }
}
