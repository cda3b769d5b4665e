//! `podbay write`: a file from standard input.

use std::ffi::OsString;
use std::io::Read;

use clap::Args;
use podbay::files::Write;

use crate::commands::{self, run};
use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;
use crate::terminal::{bytes, escape};

/// The most that is read from standard input: all of it is held in memory.
const MOST: u64 = 1 << 30;

const EXAMPLES: &str = "\
Examples:
  echo hello | podbay write box note.txt
  podbay write box config.json < config.json
  podbay write box run.sh --text 'echo hello' --chmod 755
  podbay write box lock --create-only --text ''

The file is replaced atomically, and missing directories are created. 'podbay cp' copies files of any size.";

/// Write a file of a sandbox from standard input
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Name of the sandbox
    name: String,

    /// Path of the file
    path: OsString,

    /// Content, instead of standard input
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,

    /// Fail if the file exists
    #[arg(long)]
    create_only: bool,

    /// Permissions, such as 755 [default: those of the replaced file]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    chmod: Option<u32>,
}

/// Permissions in octal digits.
pub fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("use three or four octal digits, such as 755".to_owned()),
    }
}

/// Writes the file.
pub async fn run(arguments: Arguments, settings: &Settings, output: &Output) -> Result<u8, Failure> {
    let sandbox = commands::find(settings, &arguments.name).await?;
    let content = match arguments.text {
        Some(text) => text.into_bytes(),
        None => input()?,
    };
    let request =
        Write { create_only: arguments.create_only, mode: arguments.chmod, ..Write::new(run::path(arguments.path)) };
    let written = sandbox.write(&request, content).await?;
    output.answer(&written, || format!("{} ({})", escape(&written.path.to_string_lossy()), bytes(written.size)))
}

fn input() -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let read = std::io::stdin().lock().take(MOST + 1).read_to_end(&mut content);
    read.map_err(|error| Failure::new(format!("can't read standard input: {error}; nothing was written")))?;
    match content.len() as u64 > MOST {
        true => Err(Failure::new("standard input is larger than 1 GiB; write it to a file and use 'podbay cp'")),
        false => Ok(content),
    }
}
