//! Describing one sandbox.

use podbay_client::ProtectionReport;
use podbay_client::description::{self, Limit};
use podbay_client::provider::{Listed, Phase};
use podbay_jail::{InForce, Isolation, Jail, Network};

use crate::error::{Error, Result};
use crate::listing::{ANSWER, ask, listed};
use crate::provider::{Local, connect};
use crate::sandbox_dir::{SandboxDir, check_name};

/// Everything that is known about a local sandbox.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LocalDescription {
    /// What a list shows of it.
    pub listed: Listed,
    /// The requested limits, and what enforces each.
    pub limits: Vec<InForce>,
    /// The supervisor's process id, once there is a supervisor.
    pub supervisor: Option<u32>,
    /// The process id of the sandbox's first process, seen from outside.
    pub first: Option<u32>,
    /// How many of its commands have living processes, if podbayd answers.
    pub running: Option<u32>,
    /// What the sandbox can see and use.
    pub jail: Option<Jail>,
    /// What keeps commands away from podbayd, or why podbayd doesn't say; `None` unless the sandbox is running.
    pub protection: Option<Result<ProtectionReport, String>>,
    /// Its lifetime in milliseconds.
    pub ttl_ms: Option<u64>,
    /// How long it may go unused, in milliseconds.
    pub idle_ttl_ms: Option<u64>,
}

impl Local {
    /// Describes a sandbox.
    ///
    /// # Errors
    /// When no sandbox has this id.
    pub async fn describe(&self, id: &str) -> Result<LocalDescription> {
        let missing = || Error::SandboxNotFound(id.chars().take(100).collect());
        check_name(id).map_err(|_| missing())?;
        let sandbox = SandboxDir::read(&self.home().sandboxes(), id)?.ok_or_else(missing)?;
        let phase = sandbox.phase();
        let welcome = if phase == Phase::Running { ask(&sandbox).await } else { None };
        let protection = match welcome {
            Some(_) => Some(ask_protection(&sandbox).await),
            None => None,
        };
        Ok(LocalDescription {
            protection,
            listed: listed(&sandbox, phase, welcome.as_ref()),
            limits: sandbox.started.as_ref().map(|started| started.limits.clone()).unwrap_or_default(),
            supervisor: sandbox.started.as_ref().map(|started| started.supervisor),
            first: sandbox.started.as_ref().map(|started| started.first),
            running: welcome.map(|welcome| welcome.running),
            ttl_ms: sandbox.spec.as_ref().and_then(|spec| spec.ttl_ms),
            idle_ttl_ms: sandbox.spec.as_ref().and_then(|spec| spec.idle_ttl_ms),
            jail: sandbox.spec.map(|spec| spec.jail),
        })
    }
}

async fn ask_protection(sandbox: &SandboxDir) -> Result<ProtectionReport, String> {
    let connection = connect(&sandbox.root());
    match tokio::time::timeout(ANSWER, connection.protection()).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", ANSWER.as_secs())),
    }
}

/// Converts a description to the form that all providers share.
pub(crate) fn to_common(local: LocalDescription) -> description::Description {
    let isolation = match local.jail.as_ref().map(|jail| jail.isolation) {
        Some(Isolation::Namespaces) => "namespaces",
        Some(Isolation::Landlock) => "landlock",
        None => "unknown: another version of Podbay created this sandbox",
    };
    let silent = local.listed.phase == Phase::Running && local.running.is_none();
    let mut described = description::Description::new(local.listed.clone(), isolation);
    if let Some(jail) = &local.jail {
        described.limits = limits(jail, &local);
        described.facts = facts(jail);
    }
    let process = |name, pid: Option<u32>| pid.map(|pid| (name, pid.to_string()));
    described.facts.extend(process("supervisor", local.supervisor));
    described.facts.extend(process("first process", local.first));
    (described.ttl_ms, described.idle_ttl_ms, described.running) = (local.ttl_ms, local.idle_ttl_ms, local.running);
    match local.protection {
        Some(Ok(protection)) => described.protection = Some(protection),
        Some(Err(error)) => described.unknown.push(format!(
            "can't ask podbayd how it is protected from commands: \
                                                            {error}"
        )),
        None => {}
    }
    if silent {
        described
            .unknown
            .push("podbayd doesn't answer, so the number of running commands and the last use are unknown".to_owned());
    }
    described
}

fn facts(jail: &Jail) -> Vec<(&'static str, String)> {
    let workspace = jail.workspace.as_ref().map_or("temporary".to_owned(), |path| path.display().to_string());
    let network = match jail.network {
        Network::None => "none",
        Network::Host => "host",
        Network::HostUnfenced => "host-unfenced",
    };
    let mut facts = vec![("workspace", workspace), ("network", network.to_owned())];
    facts.extend(jail.mounts.iter().map(|mount| {
        let access = if mount.writable { "rw" } else { "ro" };
        ("mount", format!("{}:{}:{access}", mount.host.display(), mount.inside.display()))
    }));
    facts
}

fn limits(jail: &Jail, local: &LocalDescription) -> Vec<Limit> {
    let set = &jail.limits;
    let count = |limit: Option<u64>| limit.map(|limit| limit.to_string());
    let asked = [
        ("memory", count(set.memory)),
        ("cpu", set.cpu.map(|cpu| cpu.to_string())),
        ("processes", count(set.processes)),
        ("disk", count(set.disk)),
        ("descriptors", count(set.descriptors)),
    ];
    let limit = |(name, most): (&str, Option<String>)| {
        let found = local.limits.iter().find(|entry| entry.limit == name);
        let by = found.and_then(|entry| entry.by.clone());
        // A limit that nothing enforces isn't shown as one.
        let most = most.filter(|_| by.is_some());
        Limit { limit: name.to_owned(), most, by, note: found.and_then(|entry| entry.note.clone()) }
    };
    asked.into_iter().map(limit).collect()
}
