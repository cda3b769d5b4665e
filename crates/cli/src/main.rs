//! The `podbay` command.
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic where output can't be written")]

mod arguments;
mod commands;
mod failure;
mod flags;
mod local_mode;
mod output;
mod progress;
mod quantity;
mod sandbox_options;
mod session;
mod settings;
mod terminal;

use clap::Parser;

use arguments::Arguments;
use failure::{FAILED, Failure};
use output::Output;

fn main() {
    let code = match Arguments::try_parse() {
        Ok(arguments) => perform(arguments),
        Err(error) => usage(&error),
    };
    // Threads may still wait for input or for a reader of the output; their work isn't needed any more.
    std::process::exit(i32::from(code));
}

fn perform(arguments: Arguments) -> u8 {
    let output = Output::new(arguments.json);
    // One thread: most of the time is spent waiting for the sandbox, and starting threads would be felt in `podbay run`.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return output.failure(&Failure::new(format!("can't start the event loop: {error}")));
        }
    };
    let result = runtime.block_on(commands::perform(arguments.verb, &arguments.settings, &output));
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(failure) => output.failure(&failure),
    }
}

/// Help goes to standard output. A wrong command line is a failure of podbay itself, with another exit code than the command's.
fn usage(error: &clap::Error) -> u8 {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => 0,
            Err(_) => FAILED,
        };
    }
    let json = std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json");
    if json {
        let text = error.render().to_string();
        let message = text.trim_start_matches("error: ").trim_end();
        return Output::new(true).failure(&Failure::new(message.to_owned()).coded("usage"));
    }
    // If standard error is closed, nobody can read it.
    let _ = error.print();
    FAILED
}
