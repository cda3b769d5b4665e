//! `podbay kill`: a signal to a command.

use clap::Args;
use podbay::Target;

use crate::commands::{self, ps};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay kill box 3f9a                    kill the command and everything that it started
  podbay kill box 3f9a --signal TERM      ask it to end
  podbay kill box 3f9a --signal HUP --main   only the command's own process";

/// Signals and their numbers on Linux, which are the same on all common architectures.
const SIGNALS: [(&str, i32); 18] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
    ("WINCH", 28),
];

/// Kill a command, or send it another signal
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Id of the command, or a unique prefix of it
    id: String,

    /// Signal, by name or number
    #[arg(long, short, default_value = "KILL", value_parser = number)]
    signal: i32,

    /// Signal only the command's own process, not everything that it started
    #[arg(long)]
    main: bool,
}

fn number(text: &str) -> Result<i32, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    named
        .or_else(|| text.parse().ok().filter(|number| (1..=64).contains(number)))
        .ok_or_else(|| "not a signal: use a name such as TERM, or a number from 1 to 64".to_owned())
}

/// Sends the signal.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let info = ps::resolve(&sandbox, &arguments.name, &arguments.id).await?;
    let target = if arguments.main { Target::Main } else { Target::All };
    let processes = sandbox.signal_to(&info.id, arguments.signal, target).await?;
    let answer = serde_json::json!({ "id": info.id, "signal": arguments.signal, "processes": processes });
    output.answer(&answer, || match processes {
        0 => format!("{}: it had already ended", info.id),
        1 => format!("{}: sent to 1 process", info.id),
        many => format!("{}: sent to {many} processes", info.id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["TERM", "sigterm", "15"] {
            assert_eq!(number(text), Ok(15), "{text}");
        }
        for bad in ["", "0", "65", "-9", "TERMINATE"] {
            assert!(number(bad).is_err(), "{bad}");
        }
    }
}
