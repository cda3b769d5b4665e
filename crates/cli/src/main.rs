//! The `podbay` command.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use podbay::local::Local;
use podbay::provider::{Provider, Wanted};
use podbay::{Command, Event, RawPath, State, Stream};

/// Sandboxes for AI agents.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs one command in a sandbox that is gone afterwards.
    Run {
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Verb::Run { words } = Arguments::parse().command;
    match run(words).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("podbay: {error:#}");
            ExitCode::from(125)
        }
    }
}

async fn run(words: Vec<String>) -> anyhow::Result<u8> {
    let local = Local::new()?;
    let made = local.get_or_create(&Wanted { leashed: true, ..Wanted::default() }).await?;
    let command = Command { timeout_ms: 0, ..Command::argv(words.into_iter().map(RawPath::from)) };
    let mut exec = made.sandbox.spawn(command).await?;
    let mut code = 125;
    while let Some(event) = exec.next().await? {
        match event {
            Event::Output(Stream::Stdout, data) => std::io::stdout().write_all(&data)?,
            Event::Output(Stream::Stderr, data) => std::io::stderr().write_all(&data)?,
            Event::Lost(bytes) => eprintln!("podbay: {bytes} bytes of output are lost"),
            Event::End(info) => {
                if let State::Exited(exit) = info.state {
                    code = exit.code as u8;
                }
            }
        }
    }
    std::io::stdout().flush()?;
    local.delete(&made.id).await?;
    Ok(code)
}
