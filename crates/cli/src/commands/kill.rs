//! `podbay kill`: a signal to a command.

use clap::Args;
use podbay::Target;

use crate::commands::{self, ps};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  podbay kill box 3f9a                    kills the command and all that it started
  podbay kill box 3f9a --signal TERM      asks it to end
  podbay kill box 3f9a --signal HUP --main   only the command's own process";

/// Signals and the numbers that Linux gives them on every machine it commonly runs on.
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

/// Ends a command, or sends it another signal
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The sandbox
    name: String,

    /// The command's id, or as much of its beginning as no other one has
    id: String,

    /// The signal, by name or number
    #[arg(long, short, default_value = "KILL", value_parser = number)]
    signal: i32,

    /// Only to the command's own process, not to all that it started
    #[arg(long)]
    main: bool,
}

fn number(text: &str) -> Result<i32, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    named
        .or_else(|| text.parse().ok().filter(|number| (1..=64).contains(number)))
        .ok_or_else(|| "that is no signal: use a name such as TERM, or a number from 1 to 64".to_owned())
}

/// Sends the signal.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let info = ps::resolve(&sandbox, &arguments.name, &arguments.id).await?;
    let target = if arguments.main { Target::Main } else { Target::All };
    let processes = sandbox.signal_to(&info.id, arguments.signal, target).await?;
    let answer = serde_json::json!({ "id": info.id, "signal": arguments.signal, "processes": processes });
    output.answer(&answer, || match processes {
        0 => format!("{}: all of it had ended before", info.id),
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
