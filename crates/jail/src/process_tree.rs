//! Processes found by parent links, and ended so that none escapes.

use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

/// Kills all descendants of this process, which must be their subreaper, and waits until none is left.
pub fn end_descendants() {
    // Asking the kernel whether there are any is faster than reading /proc.
    if !matches!(wait(WaitOptions::NOHANG), Err(Errno::CHILD)) {
        kill_descendants();
    }
}

/// As [`end_descendants`], for a process that surely has some. It stops all of them before it kills any, so that none can start
/// another unseen.
pub(crate) fn kill_descendants() {
    loop {
        let mut stopped = Vec::new();
        loop {
            let fresh: Vec<Pid> = descendants().into_iter().filter(|pid| !stopped.contains(pid)).collect();
            if fresh.is_empty() {
                break;
            }
            for pid in fresh {
                let _ = kill_process(pid, Signal::STOP);
                stopped.push(pid);
            }
        }
        for pid in &stopped {
            let _ = kill_process(*pid, Signal::KILL);
        }
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

/// When a process started, in the kernel's clock ticks since boot; `None` when there is no such process. It tells a process from
/// a later one with the same id.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = read_stat(Path::new(&format!("/proc/{pid}/stat")))?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// What the kernel says of a process. Its name is in it and may be any bytes, because a process chooses it: that mustn't hide it.
fn read_stat(file: &Path) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(file).ok()?).into_owned())
}

/// All living processes below this one.
fn descendants() -> Vec<Pid> {
    let links: Vec<(i32, i32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = read_stat(&entry.path().join("stat"))?;
            let (_, fields) = stat.rsplit_once(')')?;
            let mut fields = fields.split_ascii_whitespace();
            let (state, parent) = (fields.next()?, fields.next()?.parse().ok()?);
            (!matches!(state, "Z" | "X")).then_some((pid, parent))
        })
        .collect();
    let mut found = vec![rustix::process::getpid().as_raw_nonzero().get()];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(links.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found[1..].iter().filter_map(|pid| Pid::from_raw(*pid)).collect()
}
