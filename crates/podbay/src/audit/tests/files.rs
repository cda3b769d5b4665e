//! The log as a file: who may read it, what may be at its path, what an interrupted writer leaves.

use std::fs::{OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::super::chain::Link;
use super::*;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn add(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn nobody_else_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let log = audit(&path, small());
    for number in 0..10 {
        perform(&log, &number.to_string());
    }
    assert!(files(&path).len() > 1);
    assert!(files(&path).iter().all(|path| mode(path) == 0o600));
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    perform(&audit(&path, small()), "again");
    assert_eq!(mode(&path), 0o600);
}

/// Whoever could put a link there chose which file was written to.
#[test]
fn only_a_regular_file_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let refused = |name: &str| AuditLog::open(at(name), Rotation::default()).unwrap_err().to_string();
    std::fs::write(at("victim"), "").unwrap();
    symlink(at("victim"), at("link")).unwrap();
    symlink(at("nothing"), at("dangling")).unwrap();
    for link in ["link", "dangling"] {
        assert!(refused(link).contains("symbolic link"), "{}", refused(link));
    }
    assert!(!at("nothing").exists() && std::fs::read(at("victim")).unwrap().is_empty());
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), 0o600.into()).unwrap();
    assert!(refused("fifo").contains("regular file"), "{}", refused("fifo"));
    std::fs::write(at("notes"), "my notes\n").unwrap();
    assert!(refused("notes").contains("isn't an audit log"), "{}", refused("notes"));
    assert_eq!(std::fs::read_to_string(at("notes")).unwrap(), "my notes\n");
    assert!(AuditLog::open(at("none/audit"), Rotation::default()).is_err());

    std::fs::write(at("first-name"), "").unwrap();
    std::fs::hard_link(at("first-name"), at("second-name")).unwrap();
    assert!(refused("second-name").contains("a second name"), "{}", refused("second-name"));

    // What takes the file's place later is refused too.
    let audit = audit(&at("audit"), Rotation::default());
    perform(&audit, "1");
    std::fs::rename(at("audit"), at("moved")).unwrap();
    let notes = std::fs::metadata(at("notes")).unwrap().permissions();
    type Replace<'a> = &'a dyn Fn(&Path);
    let kinds: [(&str, Replace<'_>); 5] = [
        ("symbolic link", &|path| symlink(at("victim"), path).unwrap()),
        ("regular file", &|path| rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).unwrap()),
        ("a second name", &|path| std::fs::hard_link(at("victim"), path).unwrap()),
        ("isn't an audit log", &|path| {
            std::fs::copy(at("notes"), path).unwrap();
        }),
        ("directory", &|path| std::fs::create_dir(path).unwrap()),
    ];
    for (reason, replace) in kinds {
        replace(&at("audit"));
        let error = audit.begin("box", "read", Details::none).unwrap_err().to_string();
        assert!(error.contains(reason), "{reason}: {error}");
        std::fs::remove_file(at("audit")).or_else(|_| std::fs::remove_dir(at("audit"))).unwrap();
    }
    assert!(std::fs::read(at("victim")).unwrap().is_empty());
    assert_eq!(std::fs::read_to_string(at("notes")).unwrap(), "my notes\n");
    assert_eq!(std::fs::metadata(at("notes")).unwrap().permissions(), notes);
    // An empty file that everybody could read isn't refused, but hidden.
    std::fs::write(at("audit"), "").unwrap();
    std::fs::set_permissions(at("audit"), Permissions::from_mode(0o644)).unwrap();
    perform(&audit, "2");
    assert_eq!(mode(&at("audit")), 0o600);
}

/// Root's settings could name any file, which was then nobody else's: `/etc/passwd`.
#[test]
fn a_file_that_isnt_a_log_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("passwd");
    std::fs::write(&path, "root:x:0:0::/root:/bin/sh\n").unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    AuditLog::open(&path, Rotation::default()).unwrap_err();
    assert_eq!(mode(&path), 0o644);
}

/// A command that could change a link on the way to the log moved it while it was in use.
#[test]
fn a_link_on_the_way_is_followed_once() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("logs")).unwrap();
    std::fs::create_dir(at("elsewhere")).unwrap();
    symlink("logs", at("link")).unwrap();
    let audit = audit(&at("link/audit"), Rotation::default());
    perform(&audit, "1");
    std::fs::remove_file(at("link")).unwrap();
    symlink("elsewhere", at("link")).unwrap();
    perform(&audit, "2");
    assert_eq!(entries(&at("logs/audit")).len(), 4);
    assert!(!at("elsewhere/audit").exists());
}

/// Somebody emptied the log while it was in use, and it was found intact.
#[test]
fn what_is_cut_while_the_log_is_in_use_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    for kept in 0..4 {
        let audit = audit(&path, Rotation::default());
        perform(&audit, "1");
        perform(&audit, "2");
        let lines = lines(&path);
        std::fs::write(&path, lines[..kept].iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        perform(&audit, "3");
        let report = verify(&[&path], None).unwrap();
        let fault = report.fault.unwrap_or_else(|| panic!("{kept} lines were left"));
        assert_eq!(fault.kind, FaultKind::Removed, "{kept}: {fault:?}");
        std::fs::remove_file(&path).unwrap();
    }
}

/// Where others can create files beside the log, as in `/tmp`, theirs were renamed over, counted, removed and continued.
#[test]
fn files_of_other_users_beside_the_log_change_nothing() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    let fake = |seq: u64| {
        let link = Link { seq: seq - 1, hash: "ab".repeat(32) };
        link.seal(Some(3), &serde_json::json!({ "event": "begun" })).unwrap().0
    };
    let planted = [("1", fake(7)), ("3", fake(u64::MAX)), ("1000", fake(9)), (&u64::MAX.to_string(), fake(5))];
    for (number, content) in &planted {
        let path = dir.path().join(format!("audit.{number}"));
        std::fs::write(&path, content).unwrap();
        std::os::unix::fs::chown(&path, Some(54_321), Some(54_321)).unwrap();
    }
    let log = audit(&path, Rotation { keep: Some(2), ..small() });
    (0..30).for_each(|number| perform(&log, &number.to_string()));
    for (number, content) in &planted {
        assert_eq!(&std::fs::read(dir.path().join(format!("audit.{number}"))).unwrap(), content, "{number}");
    }
    let ours: Vec<_> = files(&path).into_iter().filter(|path| std::fs::metadata(path).unwrap().uid() == 0).collect();
    assert_eq!(ours.len(), 3, "{ours:?}");
    let report = verify(&ours, None).unwrap();
    assert!(report.intact && report.last == Some(60), "{report:?}");
    // One of this user's own, whose number is the highest, is an error and no panic.
    let last = dir.path().join("other");
    std::fs::write(&last, fake(u64::MAX)).unwrap();
    assert!(audit(&last, small()).begin("box", "read", Details::none).is_err());
}

/// Entries that couldn't be written left no trace: the log was intact without them.
#[test]
fn entries_that_couldnt_be_written_are_counted_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, away) = (dir.path().join("logs"), dir.path().join("away"));
    std::fs::create_dir(&logs).unwrap();
    let path = logs.join("audit.jsonl");
    let audit = Audit::new(AuditLog::open(&path, Rotation::default()).unwrap());
    perform(&audit, "before");
    std::fs::rename(&logs, &away).unwrap();
    perform(&audit, "lost");
    let operation = audit.begin("box", "read", Details::none).unwrap();
    std::fs::rename(&away, &logs).unwrap();
    audit.end(operation, Ok(RecordedEffect::default())).unwrap();
    perform(&audit, "after");

    let all = entries(&path);
    assert_eq!(
        all.iter().map(|entry| entry["event"].as_str().unwrap()).collect::<Vec<_>>(),
        ["begun", "ended", "lost", "ended", "begun", "ended"]
    );
    let report = verify(&[&path], None).unwrap();
    assert!(report.intact && report.entries == 6 && report.lost_count == 3, "{report:?}");
    let [lost] = &report.lost[..] else { panic!("{report:?}") };
    assert_eq!((lost.seq, lost.count, lost.pid), (3, 3, std::process::id()));
    assert!(lost.since_ms <= lost.time_ms && lost.reason.contains("No such file"), "{lost:?}");
    // It can be removed no more than others.
    let mut lines = lines(&path);
    lines.remove(2);
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    assert_eq!(verify(&[&path], None).unwrap().fault.unwrap().kind, FaultKind::Removed);
}

/// A process that held the lock and was stopped made every operation of the others wait for ten seconds, twice.
#[test]
fn a_lock_that_somebody_holds_is_waited_for_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let mut log = AuditLog::open(&path, Rotation::default()).unwrap();
    log.patience = std::time::Duration::from_secs(2);
    let audit = Audit::new(log);
    let holder = std::fs::File::open(&path).unwrap();
    holder.lock().unwrap();
    let begun = Instant::now();
    (0..3).for_each(|number| perform(&audit, &number.to_string()));
    let waited = begun.elapsed().as_millis();
    assert!((2000..10_000).contains(&waited), "{waited} ms for six entries");
    holder.unlock().unwrap();
    perform(&audit, "after");
    let report = verify(&[&path], None).unwrap();
    assert!(report.intact && report.lost_count == 6 && report.entries == 3, "{report:?}");
    assert!(report.lost[0].reason.contains("another process holds the log's lock"), "{report:?}");
}

#[test]
fn an_incomplete_line_is_closed_off_and_told_from_tampering() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    perform(&audit(&path, Rotation::default()), "1");
    let complete = std::fs::read(&path).unwrap();
    perform(&audit(&path, Rotation::default()), "2");
    let next = std::fs::read(&path).unwrap()[complete.len()..].to_vec();
    let length = next.iter().position(|byte| *byte == b'\n').unwrap();
    // Killed after any number of bytes.
    for cut in [1, 5, 40, 100, length - 1] {
        std::fs::write(&path, [&complete[..], &next[..cut]].concat()).unwrap();
        let report = verify(&[&path], None).unwrap();
        assert!(report.intact && report.entries == 2, "{cut}: {report:?}");
        assert_eq!(report.torn, [Torn { path: path.clone(), line: 3, bytes: cut as u64 }]);
        perform(&audit(&path, Rotation::default()), "3");
        let report = verify(&[&path], None).unwrap();
        assert!(report.intact && report.entries == 5 && report.torn.len() == 1, "{cut}: {report:?}");
        assert_eq!(lines(&path).len(), 6);
    }
    // Killed before the newline, which is all that is missing.
    std::fs::write(&path, [&complete[..], &next[..length]].concat()).unwrap();
    assert!(verify(&[&path], None).unwrap().torn.is_empty());
    perform(&audit(&path, Rotation::default()), "3");
    let report = verify(&[&path], None).unwrap();
    assert!(report.intact && report.entries == 5 && report.torn.is_empty(), "{report:?}");
    // The very first line of a log.
    std::fs::write(&path, &complete[..20]).unwrap();
    assert!(verify(&[&path], None).unwrap().intact);
    perform(&audit(&path, Rotation::default()), "1");
    let report = verify(&[&path], None).unwrap();
    assert!(report.intact && report.entries == 3 && report.torn.len() == 1, "{report:?}");
    // What no writer leaves.
    let log = audit(&path, Rotation::default());
    add(&path, b"rm -rf /");
    perform(&log, "2");
    let report = verify(&[&path], None).unwrap();
    assert_eq!(report.fault.unwrap().kind, FaultKind::Inserted);
}

#[test]
fn a_writer_that_is_at_work_doesnt_cover_up_a_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let log = audit(&path, Rotation::default());
    for number in 0..3 {
        perform(&log, &number.to_string());
    }
    let kept: String = lines(&path)[..3].iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, kept).unwrap();
    perform(&log, "after");
    let fault = verify(&[&path], None).unwrap().fault.unwrap();
    assert_eq!((fault.kind, fault.line, fault.seq), (FaultKind::Removed, 4, Some(4)));
    std::fs::remove_file(&path).unwrap();
    perform(&log, "after");
    // The log goes on, and says that it isn't the beginning. A new file that the file system takes for the old one was cut.
    let report = verify(&[&path], None).unwrap();
    match report.fault {
        None => assert_eq!(report.first, Some(9)),
        Some(fault) => assert_eq!((fault.kind, fault.seq), (FaultKind::Removed, Some(8))),
    }
}

#[test]
fn full_files_are_kept_as_many_as_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let log = audit(&path, Rotation { keep: Some(2), ..small() });
    for number in 0..40 {
        perform(&log, &number.to_string());
    }
    assert_eq!(files(&path).len(), 3, "{:?}", files(&path));
    let report = verify(&files(&path), None).unwrap();
    assert!(report.intact && report.first > Some(1) && report.last == Some(80), "{report:?}");
    for file in files(&path) {
        assert!(std::fs::metadata(file).unwrap().len() <= 3000);
    }
    // Killed after the file was renamed, before a new one was begun.
    let newest = path.with_extension("jsonl.999");
    std::fs::rename(&path, &newest).unwrap();
    perform(&audit(&path, small()), "again");
    let report = verify(&files(&path), None).unwrap();
    assert!(report.intact && report.last == Some(82), "{report:?}");
}

#[test]
fn huge_arguments_are_bounded_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = audit(&path, Rotation::default());
    let huge = "\u{1}".repeat(1 << 20);
    let operation = audit.begin("box", "exec", || Details::command(&Command::argv(["echo", &huge, "last"]))).unwrap();
    audit.end(operation, Ok(RecordedEffect::default())).unwrap();
    perform(&super::audit(&path, Rotation::default()), "another writer reads a long last line");
    let begun = &entries(&path)[0];
    assert_eq!(begun["argv"][1]["bytes"], 1 << 20);
    assert_eq!(begun["argv"][1]["sha256"], Digest::of(huge.as_bytes()).sha256);
    assert_eq!(begun["argv_total"]["count"], 3);
    assert!(verify(&[&path], None).unwrap().intact);
}

/// They were told by their number: other people's files were deleted, and the log's own weren't if the numbers had a gap.
#[test]
fn only_files_of_the_log_are_counted_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let other = |number: u64| path.with_extension(format!("jsonl.{number}"));
    for number in [1, 2, 500] {
        std::fs::write(other(number), "somebody's notes\n").unwrap();
    }
    std::fs::create_dir(other(3)).unwrap();
    symlink("nowhere", other(4)).unwrap();
    // Opening it fails.
    let _socket = std::os::unix::net::UnixListener::bind(other(5)).unwrap();
    let log = audit(&path, Rotation { keep: Some(2), ..small() });
    (0..40).for_each(|number| perform(&log, &number.to_string()));
    for number in [1, 2, 500] {
        assert_eq!(std::fs::read_to_string(other(number)).unwrap(), "somebody's notes\n");
    }
    let ours: Vec<_> = files(&path)
        .into_iter()
        .filter(|path| std::fs::read_to_string(path).is_ok_and(|text| text.starts_with("{\"seq\"")))
        .collect();
    assert_eq!(ours.len(), 3, "{ours:?}");
    let report = verify(&ours, None).unwrap();
    assert!(report.intact && report.last == Some(80), "{report:?}");
    // Another writer goes on from the newest of them, whatever else has a higher number.
    std::fs::write(other(900), "somebody's notes\n").unwrap();
    std::fs::rename(&path, other(899)).unwrap();
    perform(&audit(&path, small()), "again");
    let report = verify(&[other(899), path.clone()], None).unwrap();
    assert!(report.intact && report.last == Some(82), "{report:?}");
}
