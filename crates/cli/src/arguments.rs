//! The command line as a whole. Each command's own arguments stand in its module.

use clap::Parser;

use crate::commands::Verb;
use crate::settings::Settings;

/// What the exit codes mean.
pub const EXIT_CODES: &str = "\
Exit codes of podbay

  run, exec and attach end with the code of the command in the sandbox. Else:

    0      done
    1      grep, glob: nothing found; doctor: no sandbox can be made here;
           delete, reap, cp: some of it failed
    124    the command's time was up (--timeout)
    125    podbay itself failed: a wrong option, no such sandbox, no such file, …
    126    the command was found and can't be started
    127    the command wasn't found in the sandbox
    128+n  signal n ended the command, or podbay: 130 after Ctrl-C,
           137 killed, 141 nobody reads the output any more, 143 terminated
";

const AFTER_HELP: &str = "\
Examples:
  podbay run -- python3 -c 'print(2 + 2)'     one command, in a sandbox that is gone afterwards
  podbay create --name box                    a sandbox that stays
  podbay exec box -- sh -c 'echo hi > note'   a command in it
  podbay read box note                        a file of it
  podbay delete box                           its end

'podbay COMMAND --help' tells more about each command; 'podbay exit-codes' what the exit codes mean.";

/// Sandboxes for AI agents: a place to run commands and work on files, apart from everything else.
#[derive(Debug, Parser)]
#[command(name = "podbay", version, after_help = AFTER_HELP, infer_subcommands = false, max_term_width = 100)]
pub struct Arguments {
    /// Prints JSON, for programs; errors too, on standard error
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

    /// `--mode` was once a file's permissions in `write`, which took the place of the setting without a word.
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
