//! The table of modes: one row for each provider, with all that the rest of Podbay has to know of it.
//!
//! A mode's settings begin with its name: those of `agent-sandbox` are `agent_sandbox.*`.

use std::sync::Arc;

use podbay_client::provider::{Pending, Provider};
use podbay_k8s::doctor::{Doctor, Trial};
use podbay_k8s::{agent_sandbox, raw};

use super::Config;

/// A mode: where sandboxes run, and by which provider.
#[derive(Debug)]
pub struct Mode {
    /// Its name, the value of the setting `mode`.
    pub name: &'static str,
    /// Whether its sandboxes are on a cluster: then the settings `cluster.*` are for it, too.
    pub on_cluster: bool,
    /// Whether a sandbox can be leashed to the process that creates it. A cluster doesn't notice the end of a process: there, lifetimes
    /// end sandboxes.
    pub leashes: bool,
    /// Whether it can suspend sandboxes.
    pub suspends: bool,
    /// The setting that gives it a warm pool which `refill` fills.
    pub pool_setting: Option<&'static str>,
    /// For how many seconds its sandboxes may be idle unless `idle_ttl` says otherwise.
    pub(super) idle_ttl: fn() -> Option<u64>,
    /// The Python dataclass that has its settings.
    pub dataclass: &'static str,
    /// That class's documentation.
    pub about: &'static str,
    /// The page in docs/ that lists its settings.
    pub page: Option<&'static str>,
    /// What to do instead of using a flag that isn't for this mode: by flag, and for all other flags. Without an entry, the
    /// advice is to choose the flag's own mode.
    pub instead: &'static [(&'static str, &'static str)],
    /// Makes the provider.
    pub(super) provider: for<'a> fn(&'a Config) -> Pending<'a, Arc<dyn Provider>>,
    /// Prepares the examination of a cluster for this mode; without it, `podbay doctor` examines this machine.
    pub(super) doctor: Option<for<'a> fn(&'a Config, Trial) -> Pending<'a, Doctor>>,
}

/// Stands for all flags without a row of their own.
const ANY: &str = "*";

const TABLE: [Mode; 3] = [
    Mode {
        name: "local",
        on_cluster: false,
        leashes: true,
        suspends: false,
        pool_setting: None,
        idle_ttl: || None,
        dataclass: "LocalConfig",
        about: "Settings of sandboxes on this machine.",
        page: None,
        instead: &[],
        provider: |config| Box::pin(async move { config.on_this_machine() }),
        doctor: None,
    },
    Mode {
        name: "raw",
        on_cluster: true,
        leashes: false,
        suspends: false,
        pool_setting: Some("raw.warm_pool_size"),
        idle_ttl: || raw::Config::default().idle_ttl,
        dataclass: "RawConfig",
        about: "Settings of sandboxes that are plain pods on a Kubernetes cluster.",
        page: Some("raw.md"),
        instead: &[
            ("workspace", "copy files with 'podbay cp', or mount a volume with raw.volumes"),
            ("mount", "copy files with 'podbay cp', or mount a volume with raw.volumes"),
            ("isolation", "choose a --runtime-class"),
            ("processes", "the nodes have a limit of their own (podPidsLimit)"),
            ("network", "--set raw.block_network=false opens all of the network, and raw.egress a part of it"),
        ],
        provider: |config| Box::pin(async move { Ok(Arc::new(config.raw_provider().await?) as _) }),
        doctor: Some(|config, _| Box::pin(config.raw_doctor())),
    },
    Mode {
        name: "agent-sandbox",
        on_cluster: true,
        leashes: false,
        suspends: true,
        pool_setting: None,
        idle_ttl: || agent_sandbox::Config::default().idle_ttl,
        dataclass: "AgentSandboxConfig",
        about: "Settings of sandboxes on a cluster with the agent-sandbox controller.",
        page: Some("agent-sandbox.md"),
        instead: &[
            ("workspace", "copy files with 'podbay cp', or mount a volume in the template"),
            ("mount", "copy files with 'podbay cp', or mount a volume in the template"),
            (ANY, "the SandboxTemplate decides that: 'podbay install agent-sandbox' prints one"),
        ],
        provider: |config| Box::pin(async move { Ok(Arc::new(config.agent_sandbox_provider().await?) as _) }),
        doctor: Some(|config, trial| Box::pin(config.agent_sandbox_doctor(trial))),
    },
];

/// All modes; the first one is the default.
pub static MODES: &[Mode] = &TABLE;

/// The names of all modes.
pub(super) const NAMES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut row = 0;
    while row < TABLE.len() {
        names[row] = TABLE[row].name;
        row += 1;
    }
    names
};

const ON_CLUSTER: usize = {
    let (mut count, mut row) = (0, 0);
    while row < TABLE.len() {
        count += TABLE[row].on_cluster as usize;
        row += 1;
    }
    count
};

/// The names of the modes whose sandboxes are on a cluster.
pub(super) const NAMES_ON_CLUSTER: [&str; ON_CLUSTER] = {
    let mut names = [""; ON_CLUSTER];
    let (mut count, mut row) = (0, 0);
    while row < TABLE.len() {
        if TABLE[row].on_cluster {
            names[count] = TABLE[row].name;
            count += 1;
        }
        row += 1;
    }
    names
};

impl Mode {
    /// The row of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        MODES.iter().find(|row| row.name == name)
    }

    /// The beginning of its settings' keys.
    pub fn section(&self) -> String {
        self.name.replace('-', "_")
    }

    /// What to do instead of using a flag that isn't for this mode.
    pub fn instead_of(&self, flag: &str) -> Option<&'static str> {
        let of = |name: &str| self.instead.iter().find(|(flag, _)| *flag == name);
        of(flag).or_else(|| of(ANY)).map(|(_, instead)| *instead)
    }
}

/// What to do where a mode can't suspend sandboxes.
pub(crate) fn how_to_suspend() -> String {
    alternatives(|mode| mode.suspends.then(|| format!("use mode {}", mode.name)))
}

/// What to do where a mode has no warm pool.
pub(crate) fn how_to_get_a_pool() -> String {
    alternatives(|mode| mode.pool_setting.map(|setting| format!("use mode {} and set {setting}", mode.name)))
}

fn alternatives(of: impl Fn(&Mode) -> Option<String>) -> String {
    MODES.iter().filter_map(of).collect::<Vec<_>>().join(", or ")
}

impl Config {
    /// The row of the mode that `mode` names.
    pub fn mode_row(&self) -> &'static Mode {
        Mode::named(self.mode()).unwrap_or(&MODES[0])
    }

    /// Prepares the examination of the cluster on which sandboxes would run; nothing if they would run on this machine.
    ///
    /// # Errors
    /// When a setting is invalid, or there are no credentials for a cluster.
    pub async fn doctor(&self, trial: Trial) -> podbay_client::Result<Option<Doctor>> {
        match self.mode_row().doctor {
            Some(prepare) => Ok(Some(prepare(self, trial).await?)),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SETTINGS;

    #[test]
    fn every_mode_is_complete() {
        for mode in MODES {
            let section = format!("{}.", mode.section());
            assert!(SETTINGS.iter().any(|setting| setting.key.starts_with(&section)), "{} has no settings", mode.name);
            assert_eq!(mode.doctor.is_some(), mode.on_cluster, "{}", mode.name);
            let known = |flag: &str| SETTINGS.iter().any(|setting| setting.flag.is_some_and(|own| own.name == flag));
            for (flag, _) in mode.instead.iter().filter(|(flag, _)| *flag != ANY) {
                assert!(known(flag), "{}: there is no --{flag}", mode.name);
            }
            assert!(
                mode.pool_setting.is_none_or(|key| SETTINGS.iter().any(|setting| setting.key == key)),
                "{}",
                mode.name
            );
            let mut config = Config::default();
            config.set("mode", mode.name).unwrap();
            assert_eq!(config.mode_row().name, mode.name);
        }
        assert_eq!((Config::default().mode(), &NAMES_ON_CLUSTER[..]), (MODES[0].name, &["raw", "agent-sandbox"][..]));
    }
}
