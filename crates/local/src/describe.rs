//! A local sandbox in the words that all providers share.

use podbay_client::description::{self, Limit};
use podbay_client::provider::Phase;
use podbay_jail::{Isolation, Jail, Network};

use crate::provider::Description;

/// Puts what is known of a local sandbox into the form that all providers share.
pub(crate) fn describe(local: Description) -> description::Description {
    let isolation = match local.jail.as_ref().map(|jail| jail.isolation) {
        Some(Isolation::Namespaces) => "namespaces",
        Some(Isolation::Landlock) => "landlock",
        None => "unknown: another version of Podbay made this sandbox",
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
        Some(Err(error)) => described.unknown.push(format!("it doesn't say what is open to its commands: {error}")),
        None => {}
    }
    if silent {
        described.unknown.push("its podbayd doesn't answer, so its commands and last use aren't known".to_owned());
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

fn limits(jail: &Jail, local: &Description) -> Vec<Limit> {
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
        // A limit that nothing enforces is none.
        let most = most.filter(|_| by.is_some());
        Limit { limit: name.to_owned(), most, by, note: found.and_then(|entry| entry.note.clone()) }
    };
    asked.into_iter().map(limit).collect()
}
