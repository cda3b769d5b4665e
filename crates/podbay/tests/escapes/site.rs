//! A confinement with everything that an attack needs: its provider, its sandboxes, and what there is to steal.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use podbay::k8s::Cluster;
use podbay::k8s::raw::{Config, Features, Raw};
use podbay::local::{Home, Isolation, Local, Options};
use podbay::provider::{Provided, Provider, Wanted};
use podbay::{Command, Sandbox};

use crate::attack::{Attack, Fault, Method, Step, Verdict, verdict};
use crate::bait::Bait;
use crate::confinement::{Confinement, Kind};

/// How long one attack may take, the making of its sandbox included.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Site {
    pub(crate) confinement: Confinement,
    pub(crate) scratch: PathBuf,
    pub(crate) bait: Bait,
    provider: Arc<dyn Provider>,
    // The cluster's namespace goes with this.
    _namespace: Option<rig::Namespace>,
}

impl Site {
    /// Nothing where there is no cluster; why has been printed.
    pub(crate) async fn open(confinement: Confinement, scratch: PathBuf) -> Result<Option<Self>, String> {
        let bait = Bait::lay(&scratch).map_err(|error| format!("can't lay the bait: {error}"))?;
        let mut namespace = None;
        let provider: Arc<dyn Provider> = match confinement.kind {
            Kind::Namespaces | Kind::Landlock => Arc::new(local(confinement, &scratch, Options::default())?),
            Kind::Pod => {
                let Some(cluster) = rig::cluster().await.map_err(|error| format!("{error:#}"))? else {
                    return Ok(None);
                };
                let rights = cluster.namespace(rights()).await.map_err(|error| format!("{error:#}"))?;
                let raw = Raw::new(Cluster::with_client(rights.client(), rights.name()), pod(confinement));
                namespace = Some(rights);
                Arc::new(raw.map_err(|error| error.to_string())?)
            }
        };
        Ok(Some(Self { confinement, scratch, bait, provider, _namespace: namespace }))
    }

    /// A local provider with other options than the usual ones, in this site's home.
    pub(crate) fn local(&self, options: Options) -> Result<Local, String> {
        local(self.confinement, &self.scratch, options)
    }

    /// Whether sandboxes run on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.confinement.kind != Kind::Pod
    }

    /// Makes a sandbox.
    pub(crate) async fn make(&self) -> Result<Provided, String> {
        make(&*self.provider).await
    }

    /// Ends one. It has to go, whatever was done to it.
    pub(crate) async fn end(&self, made: Provided) -> Step {
        match self.provider.delete(&made.id).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the sandbox was gone before it was deleted".to_owned()),
            Err(error) => Err(format!("the sandbox can't be deleted: {error}")),
        }
    }

    /// Runs the attack.
    pub(crate) async fn attack(&self, attack: &Attack) -> Verdict {
        let attempt = async {
            match attack.method {
                Method::Around(run) => run(self).await,
                Method::Inside { program, control } => self.inside(attack.id, program, control).await,
            }
        };
        let late = || Err(Fault::Broken(format!("not finished after {PATIENCE:?}")));
        tokio::time::timeout(PATIENCE, attempt).await.unwrap_or_else(|_| late())
    }

    async fn inside(&self, id: &str, program: &str, control: &[&str]) -> Verdict {
        // Attacks run at the same time, and a control may do what the attack can't: each has a bait of its own.
        let scratch = self.scratch.join(id);
        std::fs::create_dir(&scratch).map_err(|error| error.to_string())?;
        let bait = Bait::lay(&scratch).map_err(|error| format!("can't lay the bait: {error}"))?;
        if self.confinement.kind != Kind::Pod && !control.is_empty() {
            control_outside(&bait, &scratch, program, control)?;
        }
        let made = self.make().await?;
        let loot = loot(&made.sandbox, program, &bait).await;
        self.end(made).await?;
        let mut loot = loot?;
        loot.extend(bait.untouched().err());
        verdict(loot)
    }

    /// Runs a program in a sandbox and returns what it got hold of.
    pub(crate) async fn loot(&self, sandbox: &Sandbox, program: &str) -> Result<Vec<String>, String> {
        loot(sandbox, program, &self.bait).await
    }
}

async fn loot(sandbox: &Sandbox, program: &str, bait: &Bait) -> Result<Vec<String>, String> {
    let argv = ["python3", "-c", &whole(program), &bait.described()].map(str::to_owned);
    let command = Command { timeout_ms: 60_000, ..Command::argv(argv) };
    let output = sandbox.run(command).await.map_err(|error| error.to_string())?;
    read(&output.text()).ok_or_else(|| format!("the program failed: {:?} {}", output.exit(), output.text()))
}

/// The same program outside finds what there is to find.
fn control_outside(bait: &Bait, scratch: &Path, program: &str, expected: &[&str]) -> Step {
    let directory = scratch.join("control");
    std::fs::create_dir(&directory).map_err(|error| error.to_string())?;
    let mut python = std::process::Command::new("python3");
    python.arg("-c").arg(whole(program)).arg(bait.described()).current_dir(directory);
    let output = python.output().map_err(|error| format!("python3: {error}"))?;
    bait.restore().map_err(|error| format!("can't lay the bait again: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let loot =
        read(&text).ok_or_else(|| format!("the control failed: {text}{}", String::from_utf8_lossy(&output.stderr)))?;
    match expected.iter().find(|what| !loot.iter().any(|found| found == *what)) {
        None => Ok(()),
        Some(what) => Err(format!("the attempt at {what:?} proves nothing: outside it fails too: {loot:?}")),
    }
}

pub(crate) async fn make(provider: &dyn Provider) -> Result<Provided, String> {
    // A local sandbox ends with this process; one on a cluster by itself, should this process be killed.
    let local = provider.mode() == "local";
    let wanted = Wanted { leashed: local, ttl: Some(2 * PATIENCE), ..Wanted::default() };
    provider.get_or_create(&wanted).await.map_err(|error| format!("no sandbox: {error}"))
}

fn whole(program: &str) -> String {
    format!("{}\n{program}\nprint(json.dumps(loot))\n", include_str!("prelude.py"))
}

/// The loot is on the last line.
fn read(output: &str) -> Option<Vec<String>> {
    serde_json::from_str(output.trim_end().lines().last()?).ok()
}

fn local(confinement: Confinement, scratch: &Path, options: Options) -> Result<Local, String> {
    let home = Home::at(scratch.join("h")).map_err(|error| error.to_string())?;
    let isolation = match confinement.kind {
        Kind::Landlock => Isolation::Landlock,
        _ => Isolation::Namespaces,
    };
    Ok(Local::at(home).with(Options { isolation, ..options }))
}

fn pod(confinement: Confinement) -> Config {
    let plain = Config {
        image: rig::NONROOT.into(),
        image_pull_policy: "Never".into(),
        memory_request: "16Mi".into(),
        cpu_request: "10m".into(),
        // Most clusters have it.
        runtime_class: Some(rig::RUNC.into()),
        ..Config::default()
    };
    match confinement.root {
        false => plain,
        true => Config {
            image: rig::DEBIAN.into(),
            run_as_user: Some(0),
            run_as_group: Some(0),
            run_as_non_root: false,
            ..plain
        },
    }
}

fn rights() -> Vec<k8s_openapi::api::rbac::v1::PolicyRule> {
    Features { network_rules: true, ..Features::default() }.needs().policy_rules()
}
