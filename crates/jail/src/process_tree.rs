//! Processes found by parent links, and ended so that none escapes.
//!
//! Whoever ends processes is their child-subreaper, so whatever loses its parent becomes its child: neither a double fork nor a
//! new session leads out of the tree. Among them are a jail's guardian, the shim of each command, and podbayd above the shims,
//! to which comes what a dead shim leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::str::SplitAsciiWhitespace;
use std::time::{Duration, Instant};

use podbay_proto::exec::Process;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, wait};

/// How long a killed process gets before the search for survivors is repeated.
const PAUSE: Duration = Duration::from_millis(5);

/// The living processes of this pid namespace by their parent. Zombies don't count: their children have another parent.
fn by_parent() -> BTreeMap<i32, Vec<Process>> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // A process may end during the search; then it is nobody's child any more.
        let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { continue };
        if let Some((name, parent)) = parse_stat(&stat) {
            children.entry(parent).or_default().push(Process { pid, name });
        }
    }
    children
}

/// Name and parent of a living process.
fn parse_stat(stat: &[u8]) -> Option<(String, i32)> {
    let (name, mut fields) = split_stat(stat)?;
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z" && state != "X").then(|| (String::from_utf8_lossy(name).into_owned(), parent))
}

/// The name of a process, and the fields that follow it. The name may be any bytes, because a process chooses it, also `) `: it ends
/// at the last parenthesis.
fn split_stat(stat: &[u8]) -> Option<(&[u8], SplitAsciiWhitespace<'_>)> {
    let open = stat.iter().position(|byte| *byte == b'(')?;
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    Some((stat.get(open + 1..close)?, fields.split_ascii_whitespace()))
}

/// When a process started, in the kernel's clock ticks since boot; `None` when there is no such process. It tells a process from
/// a later one with the same id.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    split_stat(&stat)?.1.nth(19)?.parse().ok()
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The living processes below one, except the subtrees of those that are spared.
fn below_except(root: i32, spared: &[i32]) -> Vec<Process> {
    let mut children = by_parent();
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for process in children.remove(&parent).unwrap_or_default() {
            if !spared.contains(&process.pid) {
                parents.push(process.pid);
                found.push(process);
            }
        }
    }
    found.sort_by_key(|process| process.pid);
    found
}

/// The living processes below one.
pub fn below(root: i32) -> Vec<Process> {
    below_except(root, &[])
}

/// Whether a living process is a child of this process or of another one.
pub fn is_child_of(pid: i32, other: Option<i32>) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    parse_stat(&stat).is_some_and(|(_, parent)| parent == own_pid() || Some(parent) == other)
}

/// Whether a process is alive and isn't this one or one that it descends from: those are never to be ended.
pub fn is_other(pid: i32) -> bool {
    let mut at = own_pid();
    for _ in 0..10_000 {
        if at == pid {
            return false;
        }
        let stat = std::fs::read(format!("/proc/{at}/stat")).unwrap_or_default();
        match parse_stat(&stat) {
            Some((_, parent)) if parent > 0 => at = parent,
            _ => break,
        }
    }
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    parse_stat(&stat).is_some()
}

/// Whether a process is alive, known, and not a descendant of this one.
pub fn is_outside(pid: i32) -> bool {
    let mut at = pid;
    // A chain of parents ends at a process that has none here.
    for _ in 0..10_000 {
        if at == own_pid() {
            return pid == at;
        }
        let stat = std::fs::read(format!("/proc/{at}/stat")).unwrap_or_default();
        match parse_stat(&stat) {
            Some((_, 0)) => return true,
            Some((_, parent)) => at = parent,
            None => return false,
        }
    }
    false
}

/// The living children of a process, by process id.
pub fn children(parent: i32) -> Vec<Process> {
    by_parent().remove(&parent).unwrap_or_default()
}

/// The living processes below this one.
pub fn descendants() -> Vec<Process> {
    below(own_pid())
}

/// Sends a signal to all below a process; how many got it.
pub fn signal_below(root: i32, signal: Signal) -> u32 {
    below(root).iter().filter(|process| send(process.pid, signal)).count() as u32
}

/// Sends a signal to all below this process; how many got it.
pub fn signal_all(signal: Signal) -> u32 {
    signal_below(own_pid(), signal)
}

/// Sends a signal to one process; whether it got it.
pub fn send(pid: i32, signal: Signal) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| rustix::process::kill_process(pid, signal).is_ok())
}

/// Kills all below this process; how many it found.
pub fn kill_all() -> u32 {
    kill(descendants)
}

/// Kills all that a search finds.
///
/// Each is stopped before any is killed, and the search repeated until it finds nobody new: a process that is stopped can't
/// fork, so none escapes by being born in between.
fn kill(search: impl Fn() -> Vec<Process>) -> u32 {
    let mut stopped = BTreeSet::new();
    // A fork bomb may need several rounds, each of which stops all that were alive at its beginning.
    for _ in 0..100 {
        let fresh: Vec<i32> = search().iter().map(|process| process.pid).filter(|pid| !stopped.contains(pid)).collect();
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

fn kill_until_none(search: impl Fn() -> Vec<Process>, patience: Duration) -> u32 {
    let (begun, mut killed) = (Instant::now(), 0);
    loop {
        match kill(&search) {
            0 => return killed,
            count => killed = killed.max(count),
        }
        if begun.elapsed() > patience {
            // Something is stuck in the kernel; its KILL is pending and takes effect once it gets out.
            return killed;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Ends a subreaper and everything below it, even if it is stopped. Returns how many processes were below it.
///
/// The subreaper goes last: as long as it lives, even stopped, orphans of the tree become its children and can be found.
pub fn end(subreaper: i32, patience: Duration) -> u32 {
    send(subreaper, Signal::STOP);
    let killed = kill_until_none(|| below(subreaper), patience);
    send(subreaper, Signal::KILL);
    killed
}

/// Kills all descendants of this process, which must be their subreaper, and waits until none is left.
pub fn end_descendants() {
    // Asking the kernel whether there are any is faster than reading /proc.
    if !matches!(wait(WaitOptions::NOHANG), Err(Errno::CHILD)) {
        kill_descendants();
    }
}

/// As [`end_descendants`], for a process that surely has some.
pub(crate) fn kill_descendants() {
    loop {
        kill_all();
        // Orphans of killed processes become our children, so without children everything is gone.
        match wait(WaitOptions::empty()) {
            Err(Errno::CHILD) => return,
            _ => {
                reap(None);
            }
        }
    }
}

/// Reaps all children that have ended. Returns the status of one of them if it was among those.
pub(crate) fn reap(wanted: Option<Pid>) -> Option<i32> {
    let mut found = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if Some(pid) == wanted {
            found = Some(status.as_raw());
        }
    }
    found
}

/// Ends the processes that other subreapers left to this one when they were killed: every child that isn't spared, and everything
/// below it.
pub fn end_orphans(spared: &[i32], patience: Duration) -> u32 {
    kill_until_none(|| below_except(own_pid(), spared), patience)
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

    #[test]
    fn who_is_below_is_not_outside() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!is_outside(child.id() as i32));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_outside(child.id() as i32), "nobody is there any more");
        assert!(!is_other(own_pid()) && !is_other(child.id() as i32), "itself, and one that is gone");
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        assert!(is_outside(parent) && is_outside(own_pid()));
        assert!(!is_other(parent), "an ancestor");
    }

    /// A stopped parent once kept its tree alive: nobody could wait for it, and nobody looked below it.
    #[test]
    fn a_tree_below_a_stopped_process_is_ended() {
        let mut root = std::process::Command::new("sh")
            .args(["-c", "setsid sh -c 'sleep 1000 & sleep 1000' & sleep 1000 & kill -STOP $$; wait"])
            .spawn()
            .unwrap();
        let pid = root.id() as i32;
        while below(pid).len() < 3 {
            std::thread::sleep(PAUSE);
        }
        let tree = below(pid);
        assert!(end(pid, Duration::from_secs(5)) >= 3);
        root.wait().unwrap();
        for process in tree {
            let stat = std::fs::read(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
            assert_eq!(parse_stat(&stat), None, "{process:?} lives");
        }
    }
}
