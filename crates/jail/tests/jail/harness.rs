//! Runs every case, and in it functions in jails.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use podbay_jail::{Jail, JailExit, Jailed, spawn};

use crate::case_process::{Run, list, wait};

/// One test.
pub(crate) type Case = (&'static str, fn(&World));

/// The result of an attack: `Err` says what succeeded.
pub(crate) type Verdict = Result<(), String>;

/// The exit code of a case that can't run here.
const SKIPPED: u8 = 77;
/// How long a case may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a case runs.
pub(crate) struct World {
    /// The case's own directory, without links in its path.
    pub(crate) scratch: PathBuf,
    /// Whether the case runs as root.
    pub(crate) root: bool,
}

impl World {
    /// A jail named after the case.
    pub(crate) fn jail(&self) -> Jail {
        Jail::new(format!("test-{}", std::process::id()))
    }

    /// A fresh directory of the case.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.scratch.join(name);
        fs::create_dir(&path).unwrap();
        path
    }
}

/// Ends the case as one that can't run here.
pub(crate) fn skip(reason: &str) -> ! {
    println!("{reason}");
    std::process::exit(SKIPPED.into())
}

/// Runs `inside` in the jail, and fails the case if an attack succeeds.
pub(crate) fn attempt(jail: &Jail, inside: impl FnOnce() -> Verdict) {
    attempt_with(jail, &[], inside);
}

/// As [`attempt`], with descriptors to keep.
pub(crate) fn attempt_with(jail: &Jail, keep: &[BorrowedFd<'_>], inside: impl FnOnce() -> Verdict) {
    let (mut jailed, said) = start(jail, keep, inside);
    let exit = jailed.wait().unwrap();
    finish(exit, said);
    jailed.cleanup().unwrap();
}

/// Starts `inside`, whose result can be read from the file.
pub(crate) fn start(jail: &Jail, keep: &[BorrowedFd<'_>], inside: impl FnOnce() -> Verdict) -> (Jailed, File) {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let mut kept = keep.to_vec();
    kept.push(write.as_fd());
    let jailed = spawn(jail, &kept, || {
        let tell = |text: &str| rustix::io::write(&write, text.as_bytes()).is_ok();
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(inside)) {
            Ok(Ok(())) => 0,
            Ok(Err(loot)) => 1 + i32::from(!tell(&loot)),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                3 + i32::from(!tell(&format!("panicked: {}", text.unwrap_or_default())))
            }
        }
    });
    (jailed.unwrap_or_else(|error| panic!("spawn: {error}")), File::from(read))
}

/// Fails the case if an attack has succeeded.
pub(crate) fn finish(exit: JailExit, mut said: File) {
    // A process that survived its jail would hold the pipe open, so this doesn't wait for its end.
    rustix::io::ioctl_fionbio(&said, true).unwrap();
    let mut text = Vec::new();
    let _ = said.read_to_end(&mut text);
    assert_eq!(exit, JailExit::Code(0), "{}", String::from_utf8_lossy(&text));
}

/// The main function of the test program.
pub(crate) fn main(groups: &[&[Case]]) -> ExitCode {
    let cases: Vec<Case> = groups.iter().flat_map(|group| group.iter().copied()).collect();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--case", name, scratch] => {
            let (_, run) = cases.iter().find(|(known, _)| *known == name).unwrap();
            run(&World { scratch: scratch.into(), root: rustix::process::geteuid().is_root() });
            ExitCode::SUCCESS
        }
        ["--who-am-i"] => crate::files::who_am_i(),
        ["--list", ..] => list(&cases),
        ref words => all(&cases, words.iter().filter(|word| !word.starts_with('-')).copied().collect::<Vec<_>>()),
    }
}

fn all(cases: &[Case], filters: Vec<&str>) -> ExitCode {
    let run = match Run::prepare("podbay-jail-") {
        Ok(run) => run,
        Err(code) => return code,
    };
    // Jails take paths without links only.
    let dir = fs::canonicalize(run.dir.path()).unwrap();
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for (name, _) in cases.iter().filter(|(name, _)| filters.iter().all(|filter| name.contains(filter))) {
        for &uid in run.users() {
            let label = format!("{name} ({})", if uid == 0 { "root" } else { "user" });
            let scratch = dir.join(format!("{name}-{uid}"));
            let (status, output) = wait(run.case(name, &scratch, uid).spawn().unwrap(), PATIENCE);
            match status.code() {
                Some(0) => passed += 1,
                Some(code) if code == i32::from(SKIPPED) => {
                    println!("skipped {label}: {}", output.trim());
                    skipped += 1;
                }
                _ => {
                    println!("FAILED {label}:\n{output}\n");
                    failed.push(label);
                }
            }
        }
    }
    println!("{passed} passed, {skipped} skipped, {} failed {failed:?}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reports a file that can be opened for reading.
pub(crate) fn unreadable(path: impl AsRef<Path>) -> Verdict {
    match File::open(path.as_ref()) {
        Err(_) => Ok(()),
        Ok(_) => Err(format!("{} can be read", path.as_ref().display())),
    }
}
