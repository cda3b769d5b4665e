//! Everything that a command started, found by parent links.
//!
//! The shim is the child-subreaper of the command, so whatever loses its parent becomes the shim's child: no process can
//! leave the tree, by no double fork and by no new session.

use std::collections::{BTreeMap, BTreeSet};

use podbay_proto::exec::Process;
use rustix::process::{Pid, Signal};

/// The living processes below this one. Zombies don't count.
pub fn descendants() -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // A process may end while this looks; then it isn't a descendant any more.
        let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { continue };
        if let Some((name, parent)) = parse_stat(&stat) {
            children.entry(parent).or_default().push(Process { pid, name });
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![rustix::process::getpid().as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            parents.push(process.pid);
            found.push(process);
        }
    }
    found.sort_by_key(|process| process.pid);
    found
}

/// Name and parent of a living process. The name may contain anything, also `) `, so it ends at the last parenthesis.
fn parse_stat(stat: &[u8]) -> Option<(String, i32)> {
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(stat.get(close + 1..)?).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let name = String::from_utf8_lossy(stat.get(open + 1..close)?).into_owned();
    // The parent of a zombie's children is no longer the zombie, so it can be left out.
    (state != "Z" && state != "X").then_some((name, parent))
}

/// Sends a signal to all of them; how many got it.
pub fn signal_all(signal: Signal) -> u32 {
    descendants().iter().filter(|process| send(process.pid, signal)).count() as u32
}

/// Sends a signal to one process; whether it got it.
pub fn send(pid: i32, signal: Signal) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| rustix::process::kill_process(pid, signal).is_ok())
}

/// Kills all of them; how many it found.
///
/// Each is stopped before any is killed, and the search repeated until it finds nobody new: a process that is stopped can't
/// fork, so none escapes by being born in between.
pub fn kill_all() -> u32 {
    let mut stopped = BTreeSet::new();
    // A fork bomb may need several rounds, each of which stops all that were alive at its beginning.
    for _ in 0..100 {
        let fresh: Vec<i32> =
            descendants().iter().map(|process| process.pid).filter(|pid| !stopped.contains(pid)).collect();
        if fresh.is_empty() {
            break;
        }
        for pid in fresh {
            send(pid, Signal::STOP);
            stopped.insert(pid);
        }
    }
    for pid in &stopped {
        send(*pid, Signal::KILL);
    }
    stopped.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_anything() {
        assert_eq!(parse_stat(b"7 (a) S 1 2) S 42 7 7 0"), Some(("a) S 1 2".into(), 42)));
        assert_eq!(parse_stat(b"7 (sh) Z 42 7"), None);
        assert_eq!(parse_stat(b"7 (sh"), None);
        assert_eq!(parse_stat(b""), None);
    }
}
