//! Runs every case with both kinds of isolation, and checks that nothing of it is left on the machine afterwards.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use podbay_client::provider::{Provided, Provider, Wanted};
use podbay_local::{Home, Isolation, Local, Options};
use rustix::process::{Pid, Signal};

use crate::case_process::{NOBODY, Run, list, wait};

/// One test.
pub(crate) type Case = (&'static str, fn(&World));

/// How long a case may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Where a case runs.
pub(crate) struct World {
    /// The case's own directory.
    pub(crate) scratch: PathBuf,
    /// Whether the case runs as root.
    pub(crate) root: bool,
    /// How its sandboxes are confined.
    pub(crate) isolation: Isolation,
}

/// The variable that tells a case its isolation.
const ISOLATION: &str = "PODBAY_TEST_ISOLATION";

impl World {
    /// An id that no other test on this machine uses.
    pub(crate) fn id(&self, name: &str) -> String {
        format!("{}-{name}", tag(&self.scratch))
    }

    /// The case's own sandboxes.
    pub(crate) fn local(&self) -> Local {
        self.local_with(Options::default())
    }

    /// Whether the case runs without namespaces.
    pub(crate) fn is_landlock(&self) -> bool {
        self.isolation == Isolation::Landlock
    }

    /// The case's own sandboxes, with options.
    pub(crate) fn local_with(&self, options: Options) -> Local {
        let isolation = if options.isolation == Isolation::default() { self.isolation } else { options.isolation };
        Local::at(Home::at(self.scratch.join("h")).unwrap()).with(Options { isolation, ..options })
    }

    /// A fresh directory of the case.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.scratch.join(name);
        fs::create_dir(&path).unwrap();
        // Without namespaces, root's sandbox runs as the owner of its workspace.
        if self.root && self.is_landlock() {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        path
    }

    /// A command that starts this test program again, in another role.
    pub(crate) fn again(&self, words: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--as").arg(&self.scratch).args(words);
        command
    }
}

/// The part that all ids of a case have in common.
fn tag(scratch: &Path) -> String {
    scratch.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Runs a future to its end.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// A request for a sandbox with this id.
pub(crate) fn named(id: &str) -> Wanted {
    Wanted { id: Some(id.to_owned()), ..Wanted::default() }
}

/// Creates a sandbox.
pub(crate) async fn make(local: &Local, wanted: &Wanted) -> Provided {
    local.get_or_create(wanted).await.unwrap_or_else(|error| panic!("get_or_create: {error}"))
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, patience: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + patience;
    while !holds().await {
        assert!(Instant::now() < end, "not within {patience:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The main function of the test program.
pub(crate) fn main(groups: &[&[Case]]) -> ExitCode {
    let cases: Vec<Case> = groups.iter().flat_map(|group| group.iter().copied()).collect();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let landlock = std::env::var_os(ISOLATION).is_some_and(|value| value == "landlock");
    let isolation = if landlock { Isolation::Landlock } else { Isolation::Namespaces };
    let world =
        |scratch: &str| World { scratch: scratch.into(), root: rustix::process::geteuid().is_root(), isolation };
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--case", name, scratch] => {
            let (_, case) = cases.iter().find(|(known, _)| *known == name).unwrap();
            case(&world(scratch));
            ExitCode::SUCCESS
        }
        ["--as", scratch, ref words @ ..] => {
            crate::races::other(&world(scratch), words);
            ExitCode::SUCCESS
        }
        ["--list", ..] => list(&cases),
        ref words => all(&cases, words.iter().filter(|word| !word.starts_with('-')).copied().collect::<Vec<_>>()),
    }
}

fn all(cases: &[Case], filters: Vec<&str>) -> ExitCode {
    let prepared = match Run::prepare("pb-") {
        Ok(prepared) => prepared,
        Err(code) => return code,
    };
    let (mut passed, mut failed) = (0, Vec::new());
    for (number, (name, _)) in cases.iter().enumerate() {
        for (&uid, isolation) in
            prepared.users().iter().flat_map(|uid| ["namespaces", "landlock"].map(|how| (uid, how)))
        {
            let label = format!("{name} ({}, {isolation})", if uid == 0 { "root" } else { "user" });
            if !filters.iter().all(|filter| label.contains(filter)) {
                continue;
            }
            let who = if uid == 0 { "r" } else { "u" };
            let scratch = prepared.dir.path().join(format!("t{}-{number}{who}{}", std::process::id(), &isolation[..1]));
            let mut command = prepared.case(name, &scratch, uid);
            command.env("PODBAY_HOME", scratch.join("h")).env(ISOLATION, isolation);
            let begun = Instant::now();
            let (status, output) = wait(command.spawn().unwrap(), PATIENCE);
            let left = left_behind(&scratch);
            if status.success() && left.is_empty() {
                println!("ok {label} {:.1} s", begun.elapsed().as_secs_f64());
                passed += 1;
            } else {
                println!("FAILED {label}:\n{output}\nleft behind: {left:#?}\n");
                end_all(&scratch);
                failed.push(label);
            }
        }
    }
    println!("{passed} passed, {} failed {failed:?}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Everything of the case's sandboxes that is left on this machine.
pub(crate) fn left_behind(scratch: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for place in ["h/sandboxes", "h/new"] {
        let entries = fs::read_dir(scratch.join(place)).into_iter().flatten().flatten();
        left.extend(entries.map(|entry| format!("file {}", entry.path().display())));
    }
    left.extend(processes(scratch).into_iter().map(|pid| format!("process {pid}")));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours = mounts.lines().filter(|line| line.contains(scratch.to_str().unwrap()));
    left.extend(ours.map(|line| format!("mount {line}")));
    groups(Path::new("/sys/fs/cgroup"), &format!("podbay-{}-", tag(scratch)), 0, &mut left);
    left
}

/// The processes of the case's sandboxes.
fn processes(scratch: &Path) -> Vec<i32> {
    let home = scratch.join("h");
    let of_case = |entry: &fs::DirEntry| {
        // podbayd erases its arguments, but its program is in the home; commands of a sandbox without namespaces run in the
        // home's directories. A dead process has neither.
        ["exe", "cwd"].iter().any(|link| fs::read_link(entry.path().join(link)).is_ok_and(|to| to.starts_with(&home)))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter(of_case).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Kills what a failed case has left.
fn end_all(scratch: &Path) {
    for pid in processes(scratch) {
        // Killing one may have ended others.
        let _ = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
}

fn groups(directory: &Path, prefix: &str, depth: u32, left: &mut Vec<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)) {
            left.push(format!("cgroup {}", entry.path().display()));
        } else if depth < 6 {
            groups(&entry.path(), prefix, depth + 1, left);
        }
    }
}
