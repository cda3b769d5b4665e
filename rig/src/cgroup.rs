//! The cgroups of a node: one below our own in every hierarchy of cgroup v1, or one in the only hierarchy of v2.
//!
//! v2 is written by the kernel's documentation and has never run: the machines on which the rig was made have v1.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

const ROOT: &str = "/sys/fs/cgroup";

/// The controllers without which a kubelet doesn't start.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// The cgroup of v2 in which the node's own programs are. Its root must have no processes, or the kubelet couldn't give the
/// cgroups of pods any controllers. `enter.sh` knows the name too.
const PROGRAMS: &str = "node";

/// Whether there are the controllers that a node needs.
pub(crate) fn available() -> bool {
    match is_v2() {
        true => names_controllers(&Path::new(ROOT).join("cgroup.controllers")),
        false => CONTROLLERS.iter().all(|name| Path::new(ROOT).join(name).is_dir()),
    }
}

fn is_v2() -> bool {
    Path::new(ROOT).join("cgroup.controllers").exists()
}

/// Whether a file of a cgroup of v2 names all controllers.
fn names_controllers(file: &Path) -> bool {
    let names = fs::read_to_string(file).unwrap_or_default();
    CONTROLLERS.iter().all(|wanted| names.split_whitespace().any(|name| name == *wanted))
}

/// The directories to make for a node called `name`: below the cgroups that this process is in, so that whatever
/// limits hold for us hold for the node. The named hierarchy `systemd` counts too, else the kubelet's tree would land in
/// the host's.
pub(crate) fn places(name: &str) -> Result<Vec<PathBuf>> {
    let own = fs::read_to_string("/proc/self/cgroup").context("cannot read /proc/self/cgroup")?;
    if is_v2() {
        return Ok(vec![place_of_v2(&own)?.join(name)]);
    }
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

/// The closest cgroup of v2 that has controllers for those below it. A cgroup with processes in it, as our own is, can't
/// have any unless it is the root, so the node is usually beside us.
fn place_of_v2(own: &str) -> Result<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).context("this process isn't in a v2 cgroup")?;
    let own = Path::new(ROOT).join(path.trim_start_matches('/'));
    let has = |place: &&Path| names_controllers(&place.join("cgroup.subtree_control"));
    if let Some(place) = own.ancestors().take_while(|place| place.starts_with(ROOT)).find(has) {
        return Ok(place.to_owned());
    }
    enable(Path::new(ROOT)).context(
        "no cgroup above this process delegates controllers. In a container, move its processes into a cgroup of \
         their own first: mkdir /sys/fs/cgroup/init, write each pid to init/cgroup.procs",
    )?;
    Ok(ROOT.into())
}

fn enable(place: &Path) -> Result<()> {
    let wanted = CONTROLLERS.map(|name| format!("+{name}")).join(" ");
    let file = place.join("cgroup.subtree_control");
    fs::write(&file, wanted).with_context(|| format!("cannot write to {}", file.display()))
}

/// Makes the directories.
pub(crate) fn create(places: &[PathBuf]) -> Result<()> {
    for place in places {
        fs::create_dir(place).with_context(|| format!("cannot create the cgroup {}", place.display()))?;
        if is_v2() {
            enable(place)?;
            fs::create_dir(place.join(PROGRAMS))?;
            continue;
        }
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

/// Removes the directories with all below them. What still runs in there is killed: a start that was itself killed in
/// the wrong moment leaves processes that nobody wrote down.
pub(crate) fn remove(places: &[PathBuf]) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    for place in places {
        while place.exists() {
            match remove_below(place) {
                Ok(()) => break,
                Err(_) if Instant::now() < deadline => {
                    kill_below(place)?;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => bail!("cannot remove the cgroup {}: {error}", place.display()),
            }
        }
    }
    Ok(())
}

fn kill_below(place: &Path) -> Result<()> {
    // A cgroup may be gone between two looks at it; then its processes are too.
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            kill_below(&entry.path())?;
        }
    }
    let processes = fs::read_to_string(place.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
        match kill_process(pid, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => bail!("cannot kill process {} in {}: {error}", pid.as_raw_pid(), place.display()),
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
    let (place, counter) = match is_v2() {
        true => (places.first()?, "anon "),
        false => (places.iter().find(|place| place.starts_with(Path::new(ROOT).join("memory")))?, "total_rss "),
    };
    let stat = fs::read_to_string(place.join("memory.stat")).ok()?;
    stat.lines().find_map(|line| line.strip_prefix(counter)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn removing_a_cgroup_kills_what_runs_in_it_and_below() {
        let name = format!("podbay-cgroup-test-{}", std::process::id());
        let Some(pids) = places(&name).unwrap().into_iter().find(|place| place.starts_with("/sys/fs/cgroup/pids"))
        else {
            return; // no cgroup v1 here: `available` says so to those who want a cluster
        };
        if create(std::slice::from_ref(&pids)).is_err() && !rustix::process::geteuid().is_root() {
            return; // only root may
        }
        let below = pids.join("below");
        fs::create_dir(&below).unwrap();
        let mut sleep = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        fs::write(below.join("cgroup.procs"), sleep.id().to_string()).unwrap();
        remove(std::slice::from_ref(&pids)).unwrap();
        assert!(!pids.exists());
        assert_eq!(sleep.wait().unwrap().signal(), Some(9));
    }
}
