//! Programs compiled from Go modules, once for each version.
//!
//! Every folder of `rig/` with a `go.mod` is a module whose only work is to pin versions (`onebox` has a little code
//! too). Nothing of upstream's code is in the repository: the Go tool fetches it and checks it against `go.sum`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::{Cache, Key};
use crate::process::{command, find, output};
use crate::progress::Step;

/// The Kubernetes version that `onebox/go.mod` requires, which its programs must report.
pub const KUBERNETES: &str = "v1.36.3";

/// Something to compile.
pub(crate) struct Program {
    /// The folder below `rig/` with its `go.mod`.
    module: &'static str,
    /// The Go package, as `go build` takes it.
    package: &'static str,
    /// The file name of the result.
    name: &'static str,
    /// Variables set by the linker.
    variables: &'static [(&'static str, &'static str)],
    /// A change to upstream's source without which it doesn't run here.
    patch: Option<Patch>,
    /// How long a first compile takes on two cores, for the progress line.
    seconds: u32,
}

/// One text to replace in one file of a vendored module.
struct Patch {
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

/// apiserver, etcd, controller-manager, scheduler, kubelet, kube-proxy, kubectl and our relay.
pub(crate) const ONEBOX: Program = Program {
    module: "onebox",
    package: ".",
    name: "onebox",
    variables: &[
        ("k8s.io/component-base/version.gitVersion", KUBERNETES),
        ("k8s.io/client-go/pkg/version.gitVersion", KUBERNETES),
    ],
    patch: None,
    seconds: 480,
};

/// Enforces NetworkPolicy.
pub(crate) const KUBE_ROUTER: Program = Program {
    module: "kube-router",
    package: "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router",
    name: "kube-router",
    variables: &[],
    // Whenever a pod comes or goes, it runs iptables some thirty times to check chains that it made at its start and that nothing
    // here removes. That took a twentieth of the processor time of all tests.
    patch: Some(Patch {
        file: "github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol/network_policy_controller.go",
        from: CHECKS_OF_CHAINS,
        to: "",
    }),
    seconds: 130,
};

const CHECKS_OF_CHAINS: &str = "\
	// ensure kube-router specific top level chains and corresponding rules exist
	npc.ensureTopLevelChains()

	// ensure default network policy chain that is applied to traffic from/to the pods that does not match any network
	// policy
	npc.ensureDefaultNetworkPolicyChain()
";

/// The controller of agent-sandbox.
pub(crate) const CONTROLLER: Program =
    agent_sandbox("sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller", "agent-sandbox-controller", 90);

/// The router of agent-sandbox, the one written in Go.
pub(crate) const ROUTER: Program = agent_sandbox("sigs.k8s.io/agent-sandbox/sandbox-router/cmd", "sandbox-router", 30);

/// The runtime of agent-sandbox that is written in Go.
pub(crate) const SANDBOXD: Program =
    agent_sandbox("sigs.k8s.io/agent-sandbox/packages/sandboxd/cmd/sandboxd", "sandboxd", 30);

/// gVisor.
pub(crate) const RUNSC: Program = Program {
    module: "gvisor",
    package: "gvisor.dev/gvisor/runsc",
    name: "runsc",
    variables: &[],
    patch: None,
    seconds: 90,
};

/// gVisor's side of containerd.
pub(crate) const RUNSC_SHIM: Program = Program {
    module: "gvisor",
    package: "gvisor.dev/gvisor/shim",
    name: "runsc-shim",
    variables: &[],
    // It lowers its own OOM score and gives up where root may not (no CAP_SYS_RESOURCE, as in most containers).
    patch: Some(Patch {
        file: "gvisor.dev/gvisor/pkg/shim/v1/manager.go",
        from: "oomScoreMax = -999",
        to: "oomScoreMax = 0",
    }),
    seconds: 30,
};

const fn agent_sandbox(package: &'static str, name: &'static str, seconds: u32) -> Program {
    Program { module: "agent-sandbox", package, name, variables: &[], patch: None, seconds }
}

impl Program {
    /// The compiled program, compiled now when the cache hasn't got it.
    pub(crate) fn file(&self, cache: &Cache) -> Result<PathBuf> {
        let directory = cache.entry("bin", self.name, &self.key()?, |draft| self.compile(draft))?;
        Ok(directory.join(self.name))
    }

    /// The file name of the result.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// A hash of all that the program is made from.
    pub(crate) fn key(&self) -> Result<Key> {
        let module = module(self.module);
        let mut key = Key::new("program 1").with(self.package).with(std::env::consts::ARCH);
        for (name, value) in self.variables {
            key = key.with(name).with(value);
        }
        if let Some(patch) = &self.patch {
            key = key.with(patch.from).with(patch.to);
        }
        let mut files: Vec<PathBuf> = std::fs::read_dir(&module)
            .with_context(|| format!("cannot read {}", module.display()))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::io::Result<_>>()?;
        files.sort();
        files.iter().try_fold(key, |key, file| key.with_file(file))
    }

    fn compile(&self, draft: &Path) -> Result<()> {
        let minutes = self.seconds.div_ceil(60);
        let step =
            Step::begin(format!("compiling {} (about {minutes} min on two cores when Go's cache is cold)", self.name));
        let mut directory = module(self.module);
        if let Some(patch) = &self.patch {
            directory = patch.vendor(&directory, draft)?;
        }
        let variables: String = self.variables.iter().map(|(name, value)| format!(" -X {name}={value}")).collect();
        output(
            go(&directory)?
                .args(["build", "-trimpath", "-buildvcs=false", "-ldflags"])
                .arg(format!("-s -w{variables}"))
                .arg("-o")
                .arg(draft.join(self.name))
                .arg(self.package),
        )?;
        if self.patch.is_some() {
            crate::cache::remove_tree(&directory)?;
        }
        step.done();
        Ok(())
    }
}

impl Patch {
    /// Copies the module with all it requires below `draft` and changes the copy.
    fn vendor(&self, module: &Path, draft: &Path) -> Result<PathBuf> {
        let copy = draft.join("source");
        std::fs::create_dir(&copy)?;
        for file in ["go.mod", "go.sum"] {
            std::fs::copy(module.join(file), copy.join(file)).with_context(|| format!("cannot copy {file}"))?;
        }
        output(go(&copy)?.args(["mod", "vendor"]))?;
        let file = copy.join("vendor").join(self.file);
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        if text.matches(self.from).count() != 1 {
            bail!("{} doesn't have {:?} exactly once: upstream has changed, so revise the patch", self.file, self.from);
        }
        std::fs::write(&file, text.replace(self.from, self.to))?;
        Ok(copy)
    }
}

/// The directory of an upstream module in Go's own module cache, as pinned by `module`'s `go.mod`.
pub(crate) fn upstream(module_folder: &str, path: &str) -> Result<PathBuf> {
    let directory = module(module_folder);
    // `go list` names a directory only when the module was fetched; this fetches it, and is quick when it was.
    output(go(&directory)?.args(["mod", "download", path]))?;
    let found = output(go(&directory)?.args(["list", "-m", "-f", "{{.Dir}}", path]))?;
    Ok(PathBuf::from(found.trim_end()))
}

/// A folder of the rig's sources.
fn module(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn go(directory: &Path) -> Result<Command> {
    let program = find("go").context("no `go` in PATH: install Go 1.26 or newer")?;
    let mut go = command(program);
    go.current_dir(directory).env("CGO_ENABLED", "0");
    Ok(go)
}
