//! Several threads and processes that write at once.

use std::process::{Child, Command as Process, Stdio};

use super::*;

const PROCESSES: usize = 8;
const THREADS: usize = 4;
const OPERATIONS: usize = 40;

/// Runs one of the ignored tests below in a process of its own.
fn child(test: &str, path: &Path) -> Child {
    let mut command = Process::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", &format!("audit::tests::writers::{test}")]).env("AUDIT_TEST_FILE", path);
    command.stdout(Stdio::null()).spawn().unwrap()
}

fn given_path() -> PathBuf {
    std::env::var_os("AUDIT_TEST_FILE").expect("a parent names the file").into()
}

#[test]
#[ignore = "a child of eight_processes_with_four_threads_each_make_one_chain"]
fn write_from_four_threads() {
    let shared = audit(&given_path(), small());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            // Half of them have a log of their own.
            let own = (thread % 2 == 0).then(|| audit(&given_path(), small()));
            let log = own.unwrap_or_else(|| shared.clone());
            scope.spawn(move || (0..OPERATIONS).for_each(|number| perform(&log, &format!("{thread} {number}"))));
        }
    });
}

#[test]
fn eight_processes_with_four_threads_each_make_one_chain() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let children: Vec<Child> = (0..PROCESSES).map(|_| child("write_from_four_threads", &path)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let report = verify(&files(&path), None).unwrap();
    assert!(report.intact && report.torn.is_empty() && report.unfinished_count == 0, "{report:?}");
    assert_eq!(report.entries, (PROCESSES * THREADS * OPERATIONS * 2) as u64);
    assert!(report.files.len() > 100, "it was rotated all the time: {}", report.files.len());
}

#[test]
#[ignore = "a child of a_killed_client_leaves_the_beginning"]
fn be_killed_during_an_operation() {
    let audit = audit(&given_path(), Rotation::default());
    perform(&audit, "before");
    let _operation = audit.begin("box", "exec", || Details::command(&Command::shell("rm -rf /data"))).unwrap();
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_killed_client_leaves_the_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let mut killed = child("be_killed_during_an_operation", &path);
    let pid = killed.id();
    assert!(!killed.wait().unwrap().success());
    let report = verify(&[&path], None).unwrap();
    assert!(report.intact && report.entries == 3, "{report:?}");
    let [begun] = &report.unfinished[..] else { panic!("{report:?}") };
    assert_eq!((begun.seq, begun.pid, &*begun.op, &*begun.target), (3, pid, "exec", "rm -rf /data"));
    // The lock died with it.
    perform(&audit(&path, Rotation::default()), "after");
    assert!(verify(&[&path], None).unwrap().intact);
}
