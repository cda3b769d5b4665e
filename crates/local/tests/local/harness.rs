//! Runs every case in a process of its own, first as this user, then (if that is root) as nobody; afterwards nothing of
//! the case may be left on the machine.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use podbay_client::provider::{Provided, Provider, Wanted};
use podbay_local::{Home, Isolation, Local, Options};
use rustix::process::{Pid, Signal};

/// One test.
pub(crate) type Case = (&'static str, fn(&World));

/// Whom root's second run becomes.
const NOBODY: u32 = 65_534;
const PATIENCE: Duration = Duration::from_secs(300);

/// Where a case runs.
pub(crate) struct World {
    /// A directory of this case alone.
    pub(crate) scratch: PathBuf,
    /// Whether the case runs as root.
    pub(crate) root: bool,
    /// How its sandboxes are confined.
    pub(crate) isolation: Isolation,
}

/// Says which isolation a process of a case shall use.
const ISOLATION: &str = "PODBAY_TEST_ISOLATION";

impl World {
    /// A name that no other test on this machine has.
    pub(crate) fn id(&self, name: &str) -> String {
        format!("{}-{name}", tag(&self.scratch))
    }

    /// The case's own sandboxes.
    pub(crate) fn local(&self) -> Local {
        self.local_with(Options::default())
    }

    /// Whether there are no namespaces.
    pub(crate) fn is_landlock(&self) -> bool {
        self.isolation == Isolation::Landlock
    }

    /// The case's own sandboxes, made in a certain way.
    pub(crate) fn local_with(&self, options: Options) -> Local {
        let isolation = if options.isolation == Isolation::default() { self.isolation } else { options.isolation };
        Local::at(Home::at(self.scratch.join("h")).unwrap()).with(Options { isolation, ..options })
    }

    /// A fresh directory of the case.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.scratch.join(name);
        fs::create_dir(&path).unwrap();
        // Without namespaces root's sandbox is whoever owns its workspace.
        if self.root && self.is_landlock() {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        path
    }

    /// This test program, to be started again as something else.
    pub(crate) fn again(&self, words: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--as").arg(&self.scratch).args(words);
        command
    }
}

/// What starts and ends with a case, as `test-XXXX`: part of every id.
fn tag(scratch: &Path) -> String {
    scratch.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Runs a future to its end.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// What is wanted under a name.
pub(crate) fn named(id: &str) -> Wanted {
    Wanted { id: Some(id.to_owned()), ..Wanted::default() }
}

/// Makes a sandbox, or says why not.
pub(crate) async fn make(local: &Local, wanted: &Wanted) -> Provided {
    local.get_or_create(wanted).await.unwrap_or_else(|error| panic!("get_or_create: {error}"))
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, patience: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + patience;
    while !holds().await {
        assert!(Instant::now() < end, "in vain for {patience:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The test binary's own main function.
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
        ["--list", ..] => {
            cases.iter().for_each(|(name, _)| println!("{name}: test"));
            ExitCode::SUCCESS
        }
        ref words => all(&cases, words.iter().filter(|word| !word.starts_with('-')).copied().collect::<Vec<_>>()),
    }
}

fn all(cases: &[Case], filters: Vec<&str>) -> ExitCode {
    let report = podbay_local::probe();
    if report.isolation != Some(Isolation::Namespaces) {
        println!("SKIPPED: no namespaces on this machine: {:#?}", report.findings);
        return if std::env::var_os("PODBAY_REQUIRE").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let root = rustix::process::geteuid().is_root();
    // The ordinary user must be able to read the binary and what the cases make.
    let home = tempfile::Builder::new().prefix("pb-").permissions(Permissions::from_mode(0o755)).tempdir_in("/tmp");
    let home = home.unwrap();
    let binary = home.path().join("local");
    fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    let users: &[u32] = if root { &[0, NOBODY] } else { &[NOBODY] };
    let (mut passed, mut failed) = (0, Vec::new());
    for (number, (name, _)) in cases.iter().enumerate() {
        for (&uid, isolation) in users.iter().flat_map(|uid| ["namespaces", "landlock"].map(|how| (uid, how))) {
            let label = format!("{name} ({}, {isolation})", if uid == 0 { "root" } else { "user" });
            if !filters.iter().all(|filter| label.contains(filter)) {
                continue;
            }
            let who = if uid == 0 { "r" } else { "u" };
            let scratch = home.path().join(format!("t{}-{number}{who}{}", std::process::id(), &isolation[..1]));
            fs::create_dir(&scratch).unwrap();
            let mut command = Command::new(&binary);
            command.args(["--case", name]).arg(&scratch).current_dir(&scratch).env("PODBAY_HOME", scratch.join("h"));
            command.env(ISOLATION, isolation);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            if root && uid != 0 {
                chown(&scratch, Some(uid), Some(uid)).unwrap();
                command.uid(uid).gid(uid);
            }
            let begun = Instant::now();
            let (success, output) = wait(command.spawn().unwrap());
            let left = left_behind(&scratch);
            if success && left.is_empty() {
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

/// Everything on this machine that belongs to the case's sandboxes.
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
        // podbayd erases its arguments, but not where its program is; commands of a sandbox without namespaces run in
        // the host's directories. An ended process has neither.
        ["exe", "cwd"].iter().any(|link| fs::read_link(entry.path().join(link)).is_ok_and(|to| to.starts_with(&home)))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter(of_case).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Ends what a case that failed has left.
fn end_all(scratch: &Path) {
    for pid in processes(scratch) {
        // Ending one may have ended others.
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

/// Waits with patience; then kills, and says so.
fn wait(mut child: Child) -> (bool, String) {
    let end = Instant::now() + PATIENCE;
    let pipes = (child.stdout.take(), child.stderr.take());
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        if let (Some(mut out), Some(mut err)) = pipes {
            let _ = out.read_to_string(&mut text);
            let _ = err.read_to_string(&mut text);
        }
        text
    });
    let mut late = "";
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
    (status.success(), format!("{}{late}", reader.join().unwrap()))
}
