//! The command line as a whole. Each command's own arguments are in its module.

use clap::Parser;

use crate::commands::Verb;
use crate::settings::Settings;

/// What the exit codes mean.
pub const EXIT_CODES: &str = "\
Exit codes of podbay

  run, exec and attach exit with the code of the command in the sandbox. Otherwise:

    0      success
    1      grep, glob: nothing found; doctor: sandboxes don't work here;
           delete, reap, cp: part of it failed; audit verify: the log was tampered with
    124    the command timed out (--timeout)
    125    podbay itself failed: a wrong option, no such sandbox, no such file, …
    126    the command exists but can't be run
    127    the command doesn't exist in the sandbox
    128+n  the command, or podbay, was ended by signal n: 130 after Ctrl-C,
           137 killed, 141 broken pipe, 143 terminated
";

const AFTER_HELP: &str = "\
Examples:
  podbay run -- python3 -c 'print(2 + 2)'     run one command in a temporary sandbox
  podbay create --name box                    create a long-lived sandbox
  podbay exec box -- sh -c 'echo hi > note'   run a command in it
  podbay read box note                        print a file in it
  podbay delete box                           delete it

'podbay COMMAND --help' explains a command, and 'podbay exit-codes' lists the exit codes.";

/// Sandboxes for AI agents: isolated places to run commands and work on files
#[derive(Debug, Parser)]
#[command(name = "podbay", version, after_help = AFTER_HELP, infer_subcommands = false, max_term_width = 100)]
pub struct Arguments {
    /// Print JSON for programs, with errors on standard error
    #[arg(long, global = true)]
    pub json: bool,

    #[command(flatten)]
    pub settings: Settings,

    #[command(subcommand)]
    pub verb: Verb,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_makes_sense() {
        super::Arguments::command().debug_assert();
    }

    /// `--mode` was once a file's permissions in `write`, which silently replaced the setting.
    #[test]
    fn no_command_has_a_flag_of_its_own_with_the_name_of_a_setting() {
        let mut command = super::Arguments::command();
        command.build();
        let global: Vec<_> =
            command.get_arguments().filter(|flag| flag.is_global_set()).map(|flag| flag.get_id().clone()).collect();
        assert!(global.len() > 5, "{global:?}");
        for sub in command.get_subcommands() {
            for flag in sub.get_arguments().filter(|flag| global.contains(flag.get_id())) {
                assert!(flag.is_global_set(), "{} has a {} of its own", sub.get_name(), flag.get_id());
            }
        }
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in super::Arguments::command().get_subcommands() {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(command.get_name() == "exit-codes" || examples.contains("podbay "), "{}", command.get_name());
        }
    }
}
