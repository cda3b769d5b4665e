//! Errors that no caller is waiting for: a line on standard error, which is podbayd's log file.

use std::fmt::Display;
use std::io::Write;

/// Writes a line, if it can be written. `eprintln!` would panic where standard error is a file on a full disk, and a shim
/// that panics takes the outcome of its command with it.
pub fn log_error(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "podbayd: {message}");
}
