//! What holds for every command: the settings, from flags, the environment and a file.

use std::path::PathBuf;

use clap::Args;
use podbay::config::Config;

use crate::failure::Failure;
use crate::quantity;

/// The flags of every command that choose settings.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings, for every command")]
pub struct Settings {
    /// Reads settings from this file, in place of podbay.toml in this directory
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Any setting, such as policy.deny_commands=curl; 'podbay config --all' lists them; may be repeated
    #[arg(long = "set", global = true, value_name = "KEY=VALUE", value_parser = quantity::pair)]
    set: Vec<(String, String)>,
}

impl Settings {
    /// The settings: flags beat the environment, that beats the file, and that beats the defaults.
    ///
    /// # Errors
    /// When one is unknown or makes no sense.
    pub fn config(&self) -> Result<Config, Failure> {
        let mut config = Config::of_process_with(self.config.as_deref())?;
        for (key, value) in &self.set {
            config.set_by("--set", key, value)?;
        }
        Ok(config)
    }
}
