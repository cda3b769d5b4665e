//! Starting a command's own process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process;
use std::sync::Arc;

use podbay_jail::{CgroupProcs, PreparedConfinement, SeccompListener};
use podbay_proto::exec::{CommandLimits, Program};
use podbay_proto::layout::listen_env;
use podbay_proto::{Error, ErrorCode, RawPath, Result};
use rustix::process::{Resource, Rlimit};

use crate::shim::cgroup::CommandCgroup;
use crate::shim::posix_spawn;
use crate::shim_protocol::StartCommand;
use crate::sys;

/// What runs a command line.
const SHELL: &str = "/bin/sh";

/// A command's own process and the shim's ends of its pipes.
pub struct Child {
    /// Its process id.
    pub pid: i32,
    /// Standard input, if it stays open.
    pub stdin: Option<OwnedFd>,
    /// Standard output.
    pub stdout: OwnedFd,
    /// Standard error, unless it is merged into standard output.
    pub stderr: Option<OwnedFd>,
    /// System calls that the shim does on its behalf.
    pub seccomp_listener: Option<SeccompListener>,
}

/// Starts it, in its cgroup and confinement if it has them.
///
/// # Errors
/// `spawn_failed`, or an error about the working directory.
pub fn spawn(
    start: &StartCommand,
    cgroup: Option<&CommandCgroup>,
    confinement: Option<PreparedConfinement>,
) -> Result<Child> {
    let mut command = command_line(start)?;
    let (stdout, stdout_theirs) = pipe()?;
    let (stderr, stderr_theirs) = if start.command.merge {
        (None, stdout_theirs.try_clone().map_err(|error| failed(&error))?)
    } else {
        let (stderr, theirs) = pipe()?;
        (Some(stderr), theirs)
    };
    let (stdin, stdin_theirs) = if start.command.stdin {
        let (theirs, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(no_pipe)?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(no_pipe)?;
        (Some(ours), theirs)
    } else {
        (None, std::fs::File::open("/dev/null").map_err(|error| failed(&error))?.into())
    };
    // They are podbayd's, not the sandbox's.
    for name in listen_env::ALL {
        command.env_remove(name);
    }
    // runc sets it for users who aren't in the image's passwd file, crun doesn't.
    if std::env::var_os("HOME").is_none() {
        command.env("HOME", "/");
    }
    for (name, value) in &start.command.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.as_bytes().contains(&0) {
            let message = format!(
                "invalid environment variable {name:?}: its name is empty or contains '=' or NUL, or its value \
                 contains NUL"
            );
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        command.env(name, os(value));
    }
    if let Some(cwd) = &start.command.cwd {
        command.current_dir(os(cwd));
    }
    let limits = start.command.limits.clone();
    let procs = cgroup.map(CommandCgroup::procs).transpose()?;
    let free = procs.is_none() && confinement.is_none() && limits.file_size.is_none();
    let stdio = [&stdin_theirs, &stdout_theirs, &stderr_theirs].map(AsFd::as_fd);
    // Where this can't start the program, the standard library can or says why not.
    let quick = if free { posix_spawn::spawn(&command, stdio).ok() } else { None };
    let (pid, listener) = if let Some(pid) = quick {
        (pid, None)
    } else {
        command.stdin(stdin_theirs).stdout(stdout_theirs).stderr(stderr_theirs);
        let confinement = confinement.map(Arc::new);
        let (asked, asking) = match confinement.as_ref().filter(|confinement| confinement.needs_listener()) {
            Some(_) => UnixStream::pair().map(|(asked, asking)| (Some(asked), Some(asking))),
            None => Ok((None, None)),
        }
        .map_err(|error| failed(&error))?;
        let theirs = confinement.clone();
        sys::before_exec(&mut command, move || {
            procs.as_ref().map_or(Ok(()), CgroupProcs::enter)?;
            prepare(&limits)?;
            theirs.as_ref().map_or(Ok(()), |confinement| confinement.enter(asking.as_ref().map(AsFd::as_fd)))
        });
        let child = command.spawn().map_err(|error| spawn_error(start, &error))?;
        let listener = match (confinement, asked) {
            // Without it, commands can't change modes and times; everything else works.
            (Some(confinement), Some(asked)) => confinement.receive_listener(asked.as_fd()).unwrap_or_default(),
            _ => None,
        };
        (child.id() as i32, listener)
    };
    Ok(Child { pid, stdin, stdout, stderr, seccomp_listener: listener })
}

/// Makes the kernel kill a command before podbayd when memory runs out. False if that failed: without a writable /proc the
/// kernel decides.
///
/// Done from outside: a process that isn't dumpable, like the shim and its child before exec, may not write its own files in
/// /proc. Processes that the command has started by then have the old value and are changed too.
pub fn prefer_for_oom(pid: i32) -> bool {
    let done = std::fs::write(format!("/proc/{pid}/oom_score_adj"), "1000").is_ok();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
        prefer_for_oom(child);
    }
    done
}

fn failed(error: &io::Error) -> Error {
    Error::new(ErrorCode::SpawnFailed, error.to_string()).with_errno(error.raw_os_error())
}

fn command_line(start: &StartCommand) -> Result<process::Command> {
    match &start.command.program {
        Program::Shell(line) if line.as_bytes().contains(&0) => Err(nul()),
        Program::Shell(line) => {
            let mut command = process::Command::new(SHELL);
            match &start.script {
                Some(script) => command.arg(os(script)),
                None => command.arg("-c").arg(os(line)),
            };
            Ok(command)
        }
        Program::Argv(words) => {
            if words.iter().any(|word| word.as_bytes().contains(&0)) {
                return Err(nul());
            }
            let Some((program, arguments)) = words.split_first() else {
                return Err(Error::new(ErrorCode::InvalidArgument, "the command is empty: name a program"));
            };
            let mut command = process::Command::new(os(program));
            command.arg0(os(program)).args(arguments.iter().map(os));
            Ok(command)
        }
    }
}

fn os(bytes: &RawPath) -> &std::ffi::OsStr {
    std::ffi::OsStr::from_bytes(bytes.as_bytes())
}

fn nul() -> Error {
    Error::new(ErrorCode::InvalidArgument, "a command can't contain a NUL byte")
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(no_pipe)?;
    rustix::io::ioctl_fionbio(&ours, true).map_err(no_pipe)?;
    Ok((ours, theirs))
}

fn no_pipe(error: rustix::io::Errno) -> Error {
    Error::new(ErrorCode::SpawnFailed, format!("can't create a pipe for the command: {error}"))
        .with_errno(Some(error.raw_os_error()))
}

/// Between fork and exec: system calls only.
fn prepare(limits: &CommandLimits) -> io::Result<()> {
    sys::reset_signals();
    rustix::process::setsid()?;
    if let Some(bytes) = limits.file_size {
        set_limit(Resource::Fsize, bytes)?;
    }
    Ok(())
}

fn set_limit(resource: Resource, value: u64) -> io::Result<()> {
    let maximum = rustix::process::getrlimit(resource).maximum.map_or(value, |most| most.min(value));
    Ok(rustix::process::setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) })?)
}

fn spawn_error(start: &StartCommand, error: &io::Error) -> Error {
    if let Some(cwd) = &start.command.cwd {
        match std::fs::metadata(os(cwd)) {
            Ok(meta) if !meta.is_dir() => {
                return Error::at(ErrorCode::NotADirectory, cwd, "the working directory isn't a directory");
            }
            Ok(_) => {}
            Err(error) => {
                let code = match error.kind() {
                    io::ErrorKind::PermissionDenied => ErrorCode::PermissionDenied,
                    io::ErrorKind::NotADirectory => ErrorCode::NotADirectory,
                    _ => ErrorCode::NotFound,
                };
                return Error::at(code, cwd, format!("can't enter the working directory: {error}"));
            }
        }
    }
    let what = match &start.command.program {
        Program::Shell(_) => RawPath::from("/bin/sh"),
        Program::Argv(words) => words.first().cloned().unwrap_or_default(),
    };
    let message = if error.raw_os_error() == Some(rustix::io::Errno::TOOBIG.raw_os_error()) {
        "its arguments and environment are too long; pass them in a file".to_owned()
    } else {
        format!("the program can't be started: {error}")
    };
    Error::at(ErrorCode::SpawnFailed, &what, message).with_errno(error.raw_os_error())
}
