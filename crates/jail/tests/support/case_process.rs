//! Runs each test case in a process of its own, as this user and, if that is root, as an ordinary user too. Shared by the tests
//! of the jail and of the local provider.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use podbay_jail::{Isolation, probe};
use tempfile::TempDir;

/// The ordinary user that root's cases run as.
pub(crate) const NOBODY: u32 = 65_534;

/// The directory of a run, and a copy of this test program in it.
pub(crate) struct Run {
    pub(crate) dir: TempDir,
    binary: PathBuf,
    root: bool,
}

impl Run {
    /// Prepares a run; or reports why nothing can be tested here, which is a failure where PODBAY_REQUIRE is set.
    pub(crate) fn prepare(prefix: &str) -> Result<Self, ExitCode> {
        let report = probe();
        if report.isolation != Some(Isolation::Namespaces) {
            println!("SKIPPED: no namespaces on this machine: {:#?}", report.findings);
            let required = std::env::var_os("PODBAY_REQUIRE").is_some();
            return Err(if required { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
        // The ordinary user must be able to read the program and what the cases make. Sockets need a short path.
        let dir = tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o755)).tempdir_in("/tmp");
        let dir = dir.unwrap();
        let binary = dir.path().join("test");
        fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
        Ok(Self { dir, binary, root: rustix::process::geteuid().is_root() })
    }

    /// The users as whom each case runs. An ordinary user runs all cases as themselves, whatever their number.
    pub(crate) fn users(&self) -> &'static [u32] {
        if self.root { &[0, NOBODY] } else { &[NOBODY] }
    }

    /// The command that runs a case in a fresh directory, which belongs to its user.
    pub(crate) fn case(&self, name: &str, scratch: &Path, uid: u32) -> Command {
        fs::create_dir(scratch).unwrap();
        let mut command = Command::new(&self.binary);
        command.args(["--case", name]).arg(scratch).current_dir(scratch);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.root && uid != 0 {
            chown(scratch, Some(uid), Some(uid)).unwrap();
            command.uid(uid).gid(uid);
        }
        command
    }
}

/// Prints the names of the cases, as `cargo test -- --list` does.
pub(crate) fn list<T>(cases: &[(&'static str, T)]) -> ExitCode {
    cases.iter().for_each(|(name, _)| println!("{name}: test"));
    ExitCode::SUCCESS
}

/// Waits for a case, and kills it when it takes too long. Returns its status and its output.
pub(crate) fn wait(mut child: Child, patience: Duration) -> (ExitStatus, String) {
    let end = Instant::now() + patience;
    let pipes = (child.stdout.take(), child.stderr.take());
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        if let (Some(mut out), Some(mut err)) = pipes {
            let _ = out.read_to_string(&mut text);
            let _ = err.read_to_string(&mut text);
        }
        text
    });
    let mut late = String::new();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > end => {
                late = format!("(killed after {patience:?})");
                child.kill().unwrap();
                break child.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    (status, format!("{}({status}){late}", reader.join().unwrap()))
}
