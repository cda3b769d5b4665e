//! What holds for every command: the settings, from flags, the environment and a file.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use podbay::config::Config;

use crate::failure::Failure;
use crate::quantity;

/// The flags of every command that choose settings.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings, for every command")]
pub struct Settings {
    /// Where sandboxes are: on this machine (unless set otherwise), or as plain pods on a Kubernetes cluster
    #[arg(long, global = true, value_enum, value_name = "MODE", hide_possible_values = true)]
    mode: Option<Mode>,

    /// The cluster's kubeconfig file; what kubectl would use when not given
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// One of its contexts
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,

    /// The namespace of the sandboxes on the cluster
    #[arg(long, global = true, value_name = "NAME")]
    namespace: Option<String>,

    /// Reads settings from this file, in place of your own and of podbay.toml in this directory
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Any setting, such as policy.deny_commands=curl; 'podbay config --all' lists them; may be repeated
    #[arg(long = "set", global = true, value_name = "KEY=VALUE", value_parser = quantity::pair)]
    set: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    Local,
    Raw,
}

impl Settings {
    /// The settings for a command that is about raw mode, whatever the mode is otherwise.
    ///
    /// # Errors
    /// When one is unknown or makes no sense.
    pub fn raw_config(&self) -> Result<Config, Failure> {
        self.config_in(Some(Mode::Raw))
    }

    /// The settings: flags beat the environment, that beats the files, and these beat the defaults.
    ///
    /// # Errors
    /// When one is unknown or makes no sense.
    pub fn config(&self) -> Result<Config, Failure> {
        self.config_in(self.mode)
    }

    fn config_in(&self, mode: Option<Mode>) -> Result<Config, Failure> {
        let mut config = Config::of_process_with(self.config.as_deref())?;
        for (key, value) in &self.set {
            config.set_by("--set", key, value)?;
        }
        let mode = match mode {
            None => None,
            Some(Mode::Local) => Some("local"),
            Some(Mode::Raw) => Some("raw"),
        };
        if let Some(mode) = mode {
            config.set_by("--mode", "mode", mode)?;
        }
        let kubeconfig = match self.kubeconfig.as_deref().map(|path| (path, path.to_str())) {
            None => None,
            Some((_, Some(text))) => Some(text),
            Some((path, None)) => {
                return Err(Failure::new(format!("--kubeconfig: the name {} isn't UTF-8", path.display())));
            }
        };
        for (flag, key, value) in [
            ("--kubeconfig", "raw.kubeconfig", kubeconfig),
            ("--context", "raw.context", self.context.as_deref()),
            ("--namespace", "raw.namespace", self.namespace.as_deref()),
        ] {
            let Some(value) = value else { continue };
            if config.mode() != "raw" {
                return Err(Failure::new(format!(
                    "{flag} is about a cluster, and the mode is {}: add --mode raw, or set PODBAY_MODE=raw",
                    config.mode()
                ))
                .coded("usage"));
            }
            config.set_by(flag, key, value)?;
        }
        Ok(config)
    }
}
