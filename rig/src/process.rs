//! Running other programs, with errors that say which one failed and what it said.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// A command with its standard input closed.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    command
}

/// Runs to the end and gives standard output; anything but exit 0 is an error that carries standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    checked(command, output)
}

/// Like [`output`], with `input` on standard input.
pub(crate) fn output_with_input(command: &mut Command, input: &[u8]) -> Result<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let mut stdin = child.stdin.take().context("no pipe to the child")?;
    // On a thread of its own: a child that writes before it has read everything must not deadlock with us.
    let output = std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.write_all(input));
        let output = child.wait_with_output();
        // A child that gave up early closes the pipe; its exit status tells more than our EPIPE.
        let _ = writer.join();
        output
    })?;
    checked(command, output)
}

/// Whether it ran and ended with exit 0. For questions, where a failure is an answer.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The directory of `PATH` that has `program`, or `None`.
pub(crate) fn find(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Debian keeps iptables, ipset and friends in sbin, which an ordinary user's PATH leaves out.
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(program))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok())
}

fn checked(command: &Command, output: Output) -> Result<String> {
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?} failed ({}): {}", output.status, tail(stderr.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The end of a long text: that is where compilers and package managers say what went wrong.
fn tail(text: &str) -> &str {
    const KEEP: usize = 4000;
    let mut start = text.len().saturating_sub(KEEP);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_program_and_carries_what_it_said() {
        let error = output(command("sh").args(["-c", "echo broken pipes >&2; exit 3"])).unwrap_err().to_string();
        assert!(
            error.contains("\"sh\"") && error.contains("exit status: 3") && error.contains("broken pipes"),
            "{error}"
        );
        let error = output(&mut command("no-such-program")).unwrap_err();
        assert!(error.to_string().contains("cannot start \"no-such-program\""), "{error}");
    }

    #[test]
    fn a_child_that_answers_before_it_has_read_everything_does_not_block() {
        let input = vec![b'x'; 1 << 20];
        assert_eq!(output_with_input(&mut command("cat"), &input).unwrap().len(), input.len());
        assert_eq!(output_with_input(&mut command("true"), &input).unwrap(), "");
    }

    #[test]
    fn a_long_error_keeps_its_end() {
        let text = format!("{}é the reason", "noise ".repeat(2000));
        assert!(tail(&text).ends_with("é the reason") && tail(&text).len() <= 4000);
    }
}
