//! `podbay ps`: the commands of a sandbox.

use clap::Args;
use podbay::{Info, Sandbox, State};

use crate::commands;
use crate::failure::Failure;
use crate::output::{Output, Table, plain};
use crate::settings::Settings;
use crate::terminal::{self, Style};

const EXAMPLES: &str = "\
Examples:
  podbay ps box            commands with live processes
  podbay ps box --all      also commands that have ended
  podbay --json ps box";

/// List the commands in a sandbox
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Also list commands that have ended
    #[arg(long, short)]
    all: bool,
}

/// Lists commands.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let commands = sandbox.commands(!arguments.all).await?;
    if output.is_json() {
        return output.json(&commands);
    }
    let now = terminal::now_ms();
    let mut table = Table::new(&["ID", "STATE", ">AGE", ">OUTPUT", ">ALIVE", "COMMAND"]);
    for info in &commands {
        table.row([
            plain(info.id.as_str()),
            state(&info.state),
            plain(terminal::span(now.saturating_sub(info.started_ms))),
            plain(terminal::bytes(info.output_bytes)),
            plain(info.processes.len().to_string()),
            plain(shortened(&info.command, 60)),
        ]);
    }
    output.text(&table.render(output))
}

fn state(state: &State) -> (Style, String) {
    match state {
        State::Running => (Style::Good, "running".to_owned()),
        State::Exited(exit) if exit.timed_out => (Style::Bad, "timed out".to_owned()),
        State::Exited(exit) => match (&exit.signal, exit.code) {
            (Some(signal), _) => (Style::Bad, signal.clone()),
            (None, 0) => (Style::Plain, "exit 0".to_owned()),
            (None, code) => (Style::Warning, format!("exit {code}")),
        },
        State::Failed(_) => (Style::Bad, "not started".to_owned()),
        State::Lost => (Style::Bad, "lost".to_owned()),
    }
}

/// Cut to so many characters.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The command with this id, or with an id that begins so.
///
/// # Errors
/// When no command matches, or more than one.
pub async fn resolve(sandbox: &Sandbox, name: &str, id: &str) -> Result<Info, Failure> {
    let mut commands = sandbox.commands(false).await?;
    if let Some(index) = commands.iter().position(|info| info.id.as_str() == id) {
        return Ok(commands.swap_remove(index));
    }
    commands.retain(|info| !id.is_empty() && info.id.as_str().starts_with(id));
    match (commands.pop(), commands.len()) {
        (Some(info), 0) => Ok(info),
        (Some(_), more) => Err(Failure::new(format!(
            "the ids of {} commands in {name} begin with {id:?}: give more of the id; 'podbay ps --all {name}' lists them",
            more + 1
        ))
        .coded("ambiguous")),
        (None, _) => Err(Failure::new(format!(
            "no command {id:?} in {name}; 'podbay ps --all {name}' lists all commands"
        ))
        .coded("exec_not_found")),
    }
}
