//! Runs a command in a jail: `cargo run -p podbay-jail --example jail -- sh -c id`.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((program, arguments)) = words.split_first() else {
        eprintln!("usage: jail PROGRAM [ARGUMENT…]");
        return ExitCode::from(2);
    };
    let copies = std::io::stdin().as_fd().try_clone_to_owned().and_then(|input| {
        Ok((input, std::io::stdout().as_fd().try_clone_to_owned()?, std::io::stderr().as_fd().try_clone_to_owned()?))
    });
    let (input, output, error) = match copies {
        Ok(copies) => copies,
        Err(error) => {
            eprintln!("jail: copy the standard descriptors: {error}");
            return ExitCode::FAILURE;
        }
    };
    let keep = [input.as_fd(), output.as_fd(), error.as_fd()];
    let mut jail = podbay_jail::Jail::new(format!("example-{}", std::process::id()));
    jail.workspace = std::env::var_os("WORKSPACE").map(Into::into);
    let jailed = podbay_jail::spawn(&jail, &keep, || {
        let copy = |fd: &std::os::fd::OwnedFd| fd.try_clone().map_or(Stdio::null(), Stdio::from);
        let status = Command::new(program)
            .args(arguments)
            .stdin(copy(&input))
            .stdout(copy(&output))
            .stderr(copy(&error))
            .status();
        match status {
            Ok(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            Err(_) => 127,
        }
    });
    let ended = jailed
        .map_err(|error| error.to_string())
        .and_then(|mut jailed| jailed.wait().and_then(|_| jailed.cleanup()).map_err(|error| error.to_string()));
    match ended {
        Ok(podbay_jail::JailExit::Code(code)) => ExitCode::from(code as u8),
        Ok(podbay_jail::JailExit::Signal(signal)) => ExitCode::from(128 + signal as u8),
        Err(error) => {
            eprintln!("jail: {error}");
            ExitCode::FAILURE
        }
    }
}
