//! The settings of every command, from flags, the environment and files.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use podbay::config::Config;

use crate::failure::Failure;
use crate::flags::{self, Given};
use crate::quantity;

const HEADING: &str = "Global settings";

/// The flags of every command that choose settings: those that the table calls global, `--config` and `--set`.
#[derive(Debug)]
pub struct Settings {
    given: Vec<Given>,
    config: Option<PathBuf>,
    set: Vec<(String, String)>,
}

impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Read settings from this file only, instead of your own file and podbay.toml in this directory");
        let set = Arg::new("set")
            .long("set")
            .value_name("KEY=VALUE")
            .value_parser(quantity::pair)
            .action(ArgAction::Append)
            .help("Set any setting, such as policy.deny_commands=curl; 'podbay config --all' lists them; repeatable");
        let all = flags::of_table(true).chain([config, set]);
        command.args(all.map(|flag| flag.global(true).help_heading(HEADING)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self {
            given: flags::given(matches, true),
            config: matches.get_one("config").cloned(),
            set: matches.get_many("set").into_iter().flatten().cloned().collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Settings {
    /// The settings of a command that is about one mode, whatever the mode is otherwise.
    ///
    /// # Errors
    /// When a setting is unknown or invalid.
    pub fn config_of(&self, mode: &str) -> Result<Config, Failure> {
        self.config_in(Some(mode))
    }

    /// The settings: flags override the environment, which overrides files, which override the defaults.
    ///
    /// # Errors
    /// When a setting is unknown or invalid.
    pub fn config(&self) -> Result<Config, Failure> {
        self.config_in(None)
    }

    fn config_in(&self, mode: Option<&str>) -> Result<Config, Failure> {
        let mut config = Config::of_process_with(self.config.as_deref())?;
        for (key, value) in &self.set {
            config.set_by("--set", key, value)?;
        }
        // The mode first: it decides what the other flags mean.
        let (modes, others): (Vec<_>, Vec<_>) = self.given.iter().partition(|given| given.name == "mode");
        for given in modes {
            given.apply(&mut config)?;
        }
        if let Some(mode) = mode {
            config.set_by("--mode", "mode", mode)?;
        }
        for given in others {
            given.apply(&mut config)?;
        }
        Ok(config)
    }
}
