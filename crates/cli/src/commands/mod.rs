//! The commands: one file and one line of the table each.

mod attach;
mod audit;
mod config;
mod cp;
mod create;
mod delete;
mod describe;
mod doctor;
mod edit;
mod exec;
mod glob;
mod grep;
mod install;
mod keys;
mod kill;
mod list;
mod ls;
mod mcp;
mod mkdir;
mod mv;
mod pool;
mod ps;
mod read;
mod reap;
mod resume;
mod rm;
mod run;
mod stat;
mod suspend;
mod tree;
mod write;

use clap::Subcommand;
use podbay::config::Config;
use podbay::{Podbay, Sandbox};

use crate::arguments::EXIT_CODES;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::settings::Settings;

macro_rules! commands {
    ($($name:ident = $module:ident,)+) => {
        /// What to do, with its arguments.
        #[derive(Debug, Subcommand)]
        pub enum Verb {
            $($name($module::Arguments),)+
            /// Explain the exit codes
            ExitCodes,
        }

        /// Runs a command and returns the process's exit code.
        ///
        /// # Errors
        /// When podbay itself failed.
        pub async fn perform(verb: Verb, settings: &Settings, output: &Output) -> Result<u8, Failure> {
            match verb {
                $(Verb::$name(arguments) => $module::run(arguments, settings, output).await,)+
                Verb::ExitCodes => output.text(EXIT_CODES),
            }
        }
    };
}

// In the order of the help.
commands! {
    Run = run,
    Create = create,
    List = list,
    Describe = describe,
    Delete = delete,
    Suspend = suspend,
    Resume = resume,
    Exec = exec,
    Ps = ps,
    Attach = attach,
    Kill = kill,
    Cp = cp,
    Read = read,
    Write = write,
    Edit = edit,
    Ls = ls,
    Tree = tree,
    Stat = stat,
    Mkdir = mkdir,
    Mv = mv,
    Rm = rm,
    Glob = glob,
    Grep = grep,
    Mcp = mcp,
    Reap = reap,
    Pool = pool,
    Install = install,
    Keys = keys,
    Config = config,
    Audit = audit,
    Doctor = doctor,
}

/// Podbay with the settings of this command line. The audit log is opened first: where it is strict and can't be opened, nothing
/// happens.
fn open(settings: &Settings) -> Result<Podbay, Failure> {
    with(settings.config()?)
}

/// Podbay with these settings.
fn with(config: Config) -> Result<Podbay, Failure> {
    Ok(Podbay::builder().config(config).on_audit_failure(output::warning).build()?)
}

/// The sandbox of that name.
async fn find(settings: &Settings, name: &str) -> Result<Sandbox, Failure> {
    Ok(open(settings)?.reconnect(name).await?)
}
