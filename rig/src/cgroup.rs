//! The cgroups of a node: one below our own in every hierarchy of cgroup v1.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const ROOT: &str = "/sys/fs/cgroup";

/// The directories to make for a node called `name`: below the cgroups that this process is in, so that whatever
/// limits hold for us hold for the node. The named hierarchy `systemd` counts too, else the kubelet's tree would land in
/// the host's.
pub(crate) fn places(name: &str) -> Result<Vec<PathBuf>> {
    let own = fs::read_to_string("/proc/self/cgroup").context("cannot read /proc/self/cgroup")?;
    Ok(own
        .lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let hierarchy = controllers.strip_prefix("name=").unwrap_or(controllers);
            let place = Path::new(ROOT).join(hierarchy).join(path.trim_start_matches('/'));
            (!hierarchy.is_empty() && place.is_dir()).then(|| place.join(name))
        })
        .collect())
}

/// Makes the directories.
pub(crate) fn create(places: &[PathBuf]) -> Result<()> {
    for place in places {
        fs::create_dir(place).with_context(|| format!("cannot make the cgroup {}", place.display()))?;
        // A new cpuset is empty, and a process can't enter it before it has processors and memory.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let Some(parent) = place.parent().map(|parent| parent.join(file)).filter(|parent| parent.exists()) else {
                continue;
            };
            fs::write(place.join(file), fs::read(&parent)?)
                .with_context(|| format!("cannot fill {}", place.join(file).display()))?;
        }
    }
    Ok(())
}

/// Removes the directories with all below them, waiting a little for their last processes to be gone.
pub(crate) fn remove(places: &[PathBuf]) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    for place in places {
        while place.exists() {
            match remove_below(place) {
                Ok(()) => break,
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => bail!("cannot remove the cgroup {}: {error}", place.display()),
            }
        }
    }
    Ok(())
}

fn remove_below(place: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_below(&entry.path())?;
        }
    }
    fs::remove_dir(place)
}

/// The memory that the processes in these cgroups use, without file cache.
pub(crate) fn memory(places: &[PathBuf]) -> Option<u64> {
    let place = places.iter().find(|place| place.starts_with(Path::new(ROOT).join("memory")))?;
    let stat = fs::read_to_string(place.join("memory.stat")).ok()?;
    stat.lines().find_map(|line| line.strip_prefix("total_rss ")?.parse().ok())
}
