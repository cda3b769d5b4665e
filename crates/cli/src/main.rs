//! The `podbay` command.
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic where output can't be written")]

mod arguments;
mod attach;
mod config;
mod cp;
mod create;
mod delete;
mod describe;
mod doctor;
mod edit;
mod exec;
mod failure;
mod glob;
mod grep;
mod install;
mod kill;
mod list;
mod local_mode;
mod ls;
mod output;
mod place;
mod pool;
mod progress;
mod ps;
mod quantity;
mod read;
mod reap;
mod run;
mod sandbox_options;
mod session;
mod settings;
mod terminal;
mod write;

use clap::Parser;

use arguments::{Arguments, Verb};
use failure::{FAILED, Failure};
use output::Output;
use settings::Settings;

fn main() {
    let code = match Arguments::try_parse() {
        Ok(arguments) => perform(arguments),
        Err(error) => usage(&error),
    };
    // Threads may be waiting for input or for someone to read the output; nothing of theirs is needed any more.
    std::process::exit(i32::from(code));
}

fn perform(arguments: Arguments) -> u8 {
    let output = Output::new(arguments.json);
    // One thread: most of the time is spent waiting for the sandbox, and starting threads would be felt in `podbay run`.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return output.failure(&Failure::new(format!("the event loop can't be started: {error}; try again")));
        }
    };
    let result = runtime.block_on(verb(arguments.verb, &arguments.settings, &output));
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(failure) => output.failure(&failure),
    }
}

async fn verb(verb: Verb, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    match verb {
        Verb::Run(arguments) => run::run(arguments, settings, output).await,
        Verb::Create(arguments) => create::create(arguments, settings, output).await,
        Verb::List(arguments) => list::list(arguments, settings, output).await,
        Verb::Describe(arguments) => describe::describe(arguments, settings, output).await,
        Verb::Delete(arguments) => delete::delete(arguments, settings, output).await,
        Verb::Exec(arguments) => exec::exec(arguments, settings, output).await,
        Verb::Ps(arguments) => ps::ps(arguments, settings, output).await,
        Verb::Attach(arguments) => attach::attach(arguments, settings, output).await,
        Verb::Kill(arguments) => kill::kill(arguments, settings, output).await,
        Verb::Cp(arguments) => cp::cp(arguments, settings, output).await,
        Verb::Read(arguments) => read::read(arguments, settings, output).await,
        Verb::Write(arguments) => write::write(arguments, settings, output).await,
        Verb::Edit(arguments) => edit::edit(arguments, settings, output).await,
        Verb::Ls(arguments) => ls::ls(arguments, settings, output).await,
        Verb::Glob(arguments) => glob::glob(arguments, settings, output).await,
        Verb::Grep(arguments) => grep::grep(arguments, settings, output).await,
        Verb::Reap(arguments) => reap::reap(arguments, settings, output).await,
        Verb::Pool(arguments) => pool::pool(arguments, settings, output).await,
        Verb::Install(arguments) => install::install(arguments, settings, output),
        Verb::Config(arguments) => config::config(&arguments, settings, output),
        Verb::Doctor(arguments) => doctor::doctor(arguments, settings, output).await,
        Verb::ExitCodes => output.text(arguments::EXIT_CODES),
    }
}

/// Help goes to standard output; a wrong command line is a failure of podbay's own, never taken for the command's.
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
    // Nobody is there to be told when standard error is closed.
    let _ = error.print();
    FAILED
}
