//! Every way to change a log is found, at the right entry.

use super::super::chain::{Head, Link};
use super::*;

struct Tampered {
    dir: tempfile::TempDir,
    path: PathBuf,
    lines: Vec<String>,
}

/// A log of six operations, in one file.
fn log() -> Tampered {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = audit(&path, Rotation::default());
    for number in 0..6 {
        perform(&audit, &format!("/data/{number}"));
    }
    let lines = lines(&path);
    assert_eq!(lines.len(), 12);
    Tampered { dir, path, lines }
}

fn store(path: &Path, lines: &[String]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(path, text).unwrap();
}

impl Tampered {
    fn last_hash(&self) -> String {
        Head::parse(self.lines.last().unwrap().as_bytes()).unwrap().hash
    }

    /// What is found when the lines are these.
    #[track_caller]
    fn found(&self, lines: &[String]) -> Option<(FaultKind, u64, Option<u64>)> {
        store(&self.path, lines);
        let report = verify(&[&self.path], None).unwrap();
        assert_eq!(report.intact, report.fault.is_none());
        if let Some(fault) = &report.fault {
            assert_eq!(fault.path, self.path);
            let expected = verify(&[&self.path], Some(&self.last_hash())).unwrap();
            assert_eq!(expected.fault.as_ref(), Some(fault));
        }
        report.fault.map(|fault| (fault.kind, fault.line, fault.seq))
    }
}

fn hash_of(line: &str) -> String {
    Head::parse(line.as_bytes()).unwrap().hash
}

/// An entry with a right hash of its own, in the place of another.
fn forged(after: &Link, file: Option<u64>) -> String {
    let (line, _) = after.seal(file, &serde_json::json!({ "event": "begun", "op": "forged" })).unwrap();
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

/// Where the chain stands before line `at`.
fn link_before(lines: &[String], at: usize) -> Link {
    at.checked_sub(1).map_or_else(Link::genesis, |before| Head::parse(lines[before].as_bytes()).unwrap().link())
}

#[test]
fn an_untouched_log_is_intact() {
    let log = log();
    let report = verify(&[&log.path], Some(&log.last_hash())).unwrap();
    assert!(report.intact && report.torn.is_empty() && report.unfinished_count == 0, "{report:?}");
    assert_eq!((report.entries, report.first, report.last, report.expected), (12, Some(1), Some(12), Some(12)));
    assert_eq!(report.last_hash, Some(log.last_hash()));
    // A hash that was kept earlier is still in a log that has grown.
    let earlier = verify(&[&log.path], Some(&hash_of(&log.lines[4]))).unwrap();
    assert!(earlier.intact && earlier.expected == Some(5));
    assert!(matches!(verify(&[&log.path], Some("abc")), Err(VerifyError::NotAHash(_))));
}

#[test]
fn a_changed_entry_is_found() {
    let log = log();
    for at in 0..12 {
        for (from, to) in
            [("/data/", "/DATA/"), ("\"op\":\"read\"", "\"op\":\"ls\""), ("\"pid\"", " \"pid\""), ("}", "")]
        {
            let mut lines = log.lines.clone();
            lines[at] = lines[at].replacen(from, to, 1);
            assert_eq!(
                log.found(&lines),
                Some((FaultKind::Changed, at as u64 + 1, Some(at as u64 + 1))),
                "{from} at {at}"
            );
        }
    }
}

#[test]
fn a_changed_entry_with_a_new_hash_is_found() {
    let log = log();
    for at in 0..11 {
        let mut lines = log.lines.clone();
        lines[at] = forged(&link_before(&lines, at), (at == 0).then_some(1));
        assert_eq!(log.found(&lines), Some((FaultKind::Changed, at as u64 + 1, Some(at as u64 + 1))), "{at}");
    }
}

#[test]
fn a_removed_entry_is_found() {
    let log = log();
    for at in 0..11 {
        let mut lines = log.lines.clone();
        lines.remove(at);
        assert_eq!(log.found(&lines), Some((FaultKind::Removed, at as u64 + 1, Some(at as u64 + 1))), "{at}");
    }
    let mut lines = log.lines.clone();
    lines.drain(3..9);
    assert_eq!(log.found(&lines), Some((FaultKind::Removed, 4, Some(4))));
}

/// This can't be known from the file alone.
#[test]
fn a_cut_end_and_a_rewritten_log_are_found_by_an_earlier_hash_only() {
    let log = log();
    let mut rewritten = log.lines[..5].to_vec();
    for _ in 5..14 {
        rewritten.push(forged(&link_before(&rewritten, rewritten.len()), None));
    }
    for lines in [&log.lines[..11], &log.lines[..1], &rewritten] {
        assert_eq!(log.found(lines), None);
        let fault = verify(&[&log.path], Some(&log.last_hash())).unwrap().fault.unwrap();
        assert_eq!(fault.kind, FaultKind::NotFound);
    }
    store(&log.path, &[]);
    assert!(verify(&[&log.path], None).unwrap().intact);
    assert!(!verify(&[&log.path], Some(&log.last_hash())).unwrap().intact);
}

#[test]
fn an_inserted_line_is_found() {
    let log = log();
    for at in 0..12 {
        let next_to = |lines: &[String]| link_before(lines, at);
        for (what, line) in [
            ("not JSON", "something".to_owned()),
            ("not an entry", "{}".to_owned()),
            ("empty", String::new()),
            ("a wrong hash", log.lines[at].replace("/data/", "/tmp/")),
            ("a right hash", forged(&next_to(&log.lines), (at == 0).then_some(1))),
            ("a right number", forged(&Link { seq: at as u64, hash: "f".repeat(64) }, None)),
        ] {
            if what == "a right number" && at == 0 {
                continue;
            }
            let mut lines = log.lines.clone();
            lines.insert(at, line);
            let (kind, line, _) = log.found(&lines).unwrap();
            assert_eq!((kind, line), (FaultKind::Inserted, at as u64 + 1), "{what} at {at}");
        }
        for copied in 0..12 {
            let mut lines = log.lines.clone();
            lines.insert(at, log.lines[copied].clone());
            // Beside its original, the second of the two is the copy.
            let expected = if copied == at { at + 1 } else { at };
            let found = log.found(&lines).unwrap();
            if at == 0 && copied > 0 {
                assert_eq!(found.1, 1, "a copy of {copied} at the beginning: {found:?}");
            } else {
                assert_eq!(
                    found,
                    (FaultKind::Inserted, expected as u64 + 1, Some(copied as u64 + 1)),
                    "{copied} at {at}"
                );
            }
        }
    }
}

#[test]
fn reordered_entries_are_found() {
    let log = log();
    for (one, other) in [(1, 2), (3, 7), (10, 11), (1, 11)] {
        let mut lines = log.lines.clone();
        lines.swap(one, other);
        let expected = Some((FaultKind::Reordered, one as u64 + 1, Some(other as u64 + 1)));
        assert_eq!(log.found(&lines), expected, "{one} and {other}");
    }
    let mut lines = log.lines.clone();
    lines.swap(0, 1);
    assert_eq!(log.found(&lines).unwrap().1, 1);
}

/// A log in several files, each with its lines.
fn rotated() -> (Tampered, Vec<(PathBuf, Vec<String>)>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = audit(&path, small());
    for number in 0..20 {
        perform(&audit, &format!("/data/{number}"));
    }
    let mut all: Vec<_> = files(&path).into_iter().map(|path| (path.clone(), lines(&path))).collect();
    all.sort_by_key(|(_, lines)| Head::parse(lines[0].as_bytes()).unwrap().seq);
    assert!(all.len() >= 4, "{all:?}");
    let lines = all.iter().flat_map(|(_, lines)| lines.clone()).collect();
    (Tampered { dir, path, lines }, all)
}

#[test]
fn the_chain_goes_on_in_the_next_file() {
    let (log, all) = rotated();
    let mut paths = files(&log.path);
    for _ in 0..paths.len() {
        paths.rotate_left(1);
        let report = verify(&paths, Some(&log.last_hash())).unwrap();
        assert!(report.intact, "{report:?}");
        assert_eq!((report.entries, report.first, report.last), (40, Some(1), Some(40)));
        assert_eq!(report.files, all.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>());
    }
    // A file that is given twice is read once.
    paths.extend(paths.clone());
    assert!(verify(&paths, None).unwrap().intact);
    for (number, (path, lines)) in all.iter().enumerate() {
        let named = log.dir.path().join(format!("audit.jsonl.{}", number + 1));
        assert!(*path == named || number + 1 == all.len());
        assert!(lines[0].contains(&format!("\"file\":{}", number + 1)) && !lines[1].contains("\"file\""));
    }
    // The older files may be gone, which is told.
    let report = verify(&[&log.path], None).unwrap();
    assert!(report.intact && report.first > Some(1));
}

#[test]
fn tampering_is_found_across_files() {
    let (log, all) = rotated();
    let seq = |file: usize, line: usize| Head::parse(all[file].1[line].as_bytes()).unwrap().seq;
    let found = |changed: &[(usize, Vec<String>)]| {
        for (file, lines) in changed {
            store(&all[*file].0, lines);
        }
        let fault = verify(&files(&log.path), None).unwrap().fault.unwrap();
        for (file, _) in changed {
            store(&all[*file].0, &all[*file].1);
        }
        (fault.kind, fault.path, fault.line, fault.seq)
    };
    let without = |file: usize, line: usize| {
        let mut lines = all[file].1.clone();
        lines.remove(line);
        lines
    };
    // The first and the last line of a file, and one in the middle.
    assert_eq!(found(&[(0, without(0, 0))]), (FaultKind::Removed, all[0].0.clone(), 1, Some(1)));
    assert_eq!(found(&[(1, without(1, 0))]), (FaultKind::Removed, all[1].0.clone(), 1, Some(seq(1, 0))));
    assert_eq!(found(&[(1, without(1, 2))]), (FaultKind::Removed, all[1].0.clone(), 3, Some(seq(1, 2))));
    let last = all[1].1.len() - 1;
    assert_eq!(found(&[(1, without(1, last))]), (FaultKind::Removed, all[2].0.clone(), 1, Some(seq(1, last))));
    // Lines of two files change places, or one moves to another file.
    let (mut one, mut other) = (all[0].1.clone(), all[2].1.clone());
    std::mem::swap(&mut one[2], &mut other[2]);
    assert_eq!(
        found(&[(0, one), (2, other)]),
        (FaultKind::Reordered, all[0].0.clone(), 3, Some(seq(2, 2))),
        "the lines of two files"
    );
    let mut longer = all[2].1.clone();
    longer.push(all[0].1[2].clone());
    assert_eq!(
        found(&[(0, without(0, 2)), (2, longer)]),
        (FaultKind::Reordered, all[0].0.clone(), 3, Some(seq(0, 3))),
        "moved to another file"
    );
    // A whole file is gone.
    std::fs::remove_file(&all[1].0).unwrap();
    let fault = verify(&files(&log.path), None).unwrap().fault.unwrap();
    assert_eq!((fault.kind, fault.path, fault.seq), (FaultKind::Removed, all[2].0.clone(), Some(seq(1, 0))));
}

/// `printf hello > log` was an intact log with an incomplete line, and a compressed file a changed one.
#[test]
fn a_file_without_any_entry_isnt_part_of_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    perform(&audit(&path, Rotation::default()), "1");
    let other = dir.path().join("audit.1.gz");
    for content in [&b"hello"[..], b"\x1f\x8b\x08\x00\n\n", b"{\"seq\":1,\"op\":\"read\"}\n"] {
        std::fs::write(&other, content).unwrap();
        for paths in [vec![&other], vec![&path, &other]] {
            let refused = verify(&paths, None).unwrap_err().to_string();
            assert!(refused.contains("audit.1.gz: no entry of an audit log is in it"), "{refused}");
        }
    }
    // That of a writer that was killed, and of one that hasn't written yet.
    for content in [&b""[..], b"{\"se"] {
        std::fs::write(&other, content).unwrap();
        assert!(verify(&[&path, &other], None).unwrap().intact, "{}", content.escape_ascii());
    }
}

/// It waited as long as a command that could see the log held the lock.
#[test]
fn a_writer_that_was_stopped_is_waited_for_in_vain() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    perform(&audit(&path, Rotation::default()), "1");
    let holder = std::fs::File::open(&path).unwrap();
    holder.lock().unwrap();
    let begun = Instant::now();
    assert!(verify(&[&path], None).unwrap().intact);
    assert!(begun.elapsed().as_secs() < 10);
}
