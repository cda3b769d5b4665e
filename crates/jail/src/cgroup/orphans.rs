//! Groups whose maker died before it could remove them.

use std::fs;
use std::io;

use super::PREFIX;
use super::hierarchies::Hierarchies;
use crate::error::FailedStep;
use crate::process_tree::start_time;

/// The name for a new group: an id, and pid and start time of this process.
pub(super) fn own_name(id: &str) -> io::Result<String> {
    let pid = std::process::id();
    let start = start_time(pid).ok_or_else(|| io::Error::other("/proc/self/stat can't be read"))?;
    Ok(format!("{PREFIX}{id}.{pid}.{start}"))
}

/// Removes empty groups below this process's own whose makers died. Returns how many there were.
///
/// # Errors
/// When the groups can't be listed.
pub fn sweep() -> Result<usize, FailedStep> {
    let own = Hierarchies::of_this_process()?;
    let mut swept = 0;
    for directory in own.all() {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(FailedStep::new(format!("list {}", directory.display()), error)),
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            // A living maker may be about to use its group.
            if name.to_str().is_some_and(is_orphan) && fs::remove_dir(entry.path()).is_ok() {
                swept += 1;
            }
        }
    }
    Ok(swept)
}

/// Whether a group's name says that its maker is dead.
fn is_orphan(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let mut parts = rest.rsplitn(3, '.');
    let start = parts.next().and_then(|n| n.parse::<u64>().ok());
    let pid = parts.next().and_then(|n| n.parse::<u32>().ok());
    match (start, pid, parts.next()) {
        (Some(start), Some(pid), Some(_)) => start_time(pid) != Some(start),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_of_dead_makers_are_orphans() {
        let own = own_name("pb-a.b").unwrap();
        assert!(!is_orphan(&own), "{own}");
        assert!(is_orphan("podbay-jail-pb-x.1.999999999999"), "the pid lives, but began at another time");
        assert!(is_orphan("podbay-jail-pb-x.4194304.5"));
        assert!(!is_orphan("podbay-jail-something-else") && !is_orphan("podbay-other.4194304.5"));
        assert!(!is_orphan("system.slice"));
    }
}
