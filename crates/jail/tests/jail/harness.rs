//! Runs every case in a process of its own, first as this user, then (if that is root) as nobody.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use podbay_jail::{Exit, Jail, Jailed, spawn};

/// One test.
pub(crate) type Case = (&'static str, fn(&World));

/// What an attacker reports: `Err` says what it got hold of.
pub(crate) type Verdict = Result<(), String>;

/// Whom root's second run becomes.
const NOBODY: u32 = 65_534;
const SKIPPED: u8 = 77;
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a case runs.
pub(crate) struct World {
    /// A directory of this case alone, without links in its path.
    pub(crate) scratch: PathBuf,
    /// Whether the case runs as root.
    pub(crate) root: bool,
}

impl World {
    /// A jail named after the case.
    pub(crate) fn jail(&self) -> Jail {
        Jail::new(format!("test-{}", std::process::id()))
    }

    /// A fresh directory below scratch.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.scratch.join(name);
        fs::create_dir(&path).unwrap();
        path
    }
}

/// Ends the case as «could not be tried here».
pub(crate) fn skip(reason: &str) -> ! {
    println!("{reason}");
    std::process::exit(SKIPPED.into())
}

/// Starts `inside` in the jail, and fails the case if it reports a success of the attacker.
pub(crate) fn attempt(jail: &Jail, inside: impl FnOnce() -> Verdict) {
    attempt_with(jail, &[], inside);
}

/// As [`attempt`], with kept descriptors.
pub(crate) fn attempt_with(jail: &Jail, keep: &[BorrowedFd<'_>], inside: impl FnOnce() -> Verdict) {
    let (mut jailed, said) = start(jail, keep, inside);
    let exit = jailed.wait().unwrap();
    finish(exit, said);
    jailed.cleanup().unwrap();
}

/// Starts `inside`; what it reports can be read from the file.
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

/// Fails the case unless the attacker went home with nothing.
pub(crate) fn finish(exit: Exit, mut said: File) {
    // A process that survived its jail would hold the pipe open: don't wait for its end.
    rustix::io::ioctl_fionbio(&said, true).unwrap();
    let mut text = Vec::new();
    let _ = said.read_to_end(&mut text);
    assert_eq!(exit, Exit::Code(0), "{}", String::from_utf8_lossy(&text));
}

/// The test binary's own main function.
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
        ["--list", ..] => {
            cases.iter().for_each(|(name, _)| println!("{name}: test"));
            ExitCode::SUCCESS
        }
        ref words => all(&cases, words.iter().filter(|word| !word.starts_with('-')).copied().collect::<Vec<_>>()),
    }
}

fn all(cases: &[Case], filters: Vec<&str>) -> ExitCode {
    if podbay_jail::probe().isolation != Some(podbay_jail::Isolation::Namespaces) {
        println!("SKIPPED: no namespaces on this machine: {:#?}", podbay_jail::probe().findings);
        return ExitCode::SUCCESS;
    }
    let root = rustix::process::geteuid().is_root();
    // The ordinary user must be able to read the binary and what the cases make.
    let home = tempfile::Builder::new().prefix("podbay-jail-").permissions(Permissions::from_mode(0o755)).tempdir();
    let home = home.unwrap();
    let binary = home.path().join("jail");
    fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    let users: &[u32] = if root { &[0, NOBODY] } else { &[NOBODY] };
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for (name, _) in cases.iter().filter(|(name, _)| filters.iter().all(|filter| name.contains(filter))) {
        for &uid in users {
            let label = format!("{name} ({})", if uid == 0 { "root" } else { "user" });
            let scratch = fs::canonicalize(home.path()).unwrap().join(format!("{name}-{uid}"));
            fs::create_dir(&scratch).unwrap();
            let mut command = Command::new(&binary);
            command.args(["--case", name]).arg(&scratch).current_dir(&scratch);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            if root && uid != 0 {
                chown(&scratch, Some(uid), Some(uid)).unwrap();
                command.uid(uid).gid(uid);
            }
            let (status, output) = wait(command.spawn().unwrap());
            match status {
                Some(0) => passed += 1,
                Some(code) if code == SKIPPED.into() => {
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

/// Waits with patience; then kills, and says so.
fn wait(mut child: Child) -> (Option<i32>, String) {
    let end = Instant::now() + PATIENCE;
    let mut late = "";
    let pipes = (child.stdout.take(), child.stderr.take());
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        if let (Some(mut out), Some(mut err)) = pipes {
            let _ = out.read_to_string(&mut text);
            let _ = err.read_to_string(&mut text);
        }
        text
    });
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > end => {
                late = "(killed: it took too long)";
                child.kill().unwrap();
                break child.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let text = reader.join().unwrap();
    let signal = status.signal().map(|signal| format!("(signal {signal})")).unwrap_or_default();
    (status.code(), format!("{text}{signal}{late}"))
}

/// Fails if the file can be opened for reading.
pub(crate) fn unreadable(path: impl AsRef<Path>) -> Verdict {
    match File::open(path.as_ref()) {
        Err(_) => Ok(()),
        Ok(_) => Err(format!("{} can be read", path.as_ref().display())),
    }
}
