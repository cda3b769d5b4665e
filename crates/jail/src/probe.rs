//! What this machine supports, found out by trying.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::process::WaitOptions;
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::ids::{self, HostUser, Ids};
use crate::jail::{Isolation, Jail};
use crate::limits::JailLimits;
use crate::sys::{self, Cloned, MountAttr};
use crate::{host_mounts, landlock};

/// What jails can have on this machine, for this user.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The strongest isolation that works; `None` if no jail can be made.
    pub isolation: Option<Isolation>,
    /// The result of each check.
    pub findings: Vec<ProbeFinding>,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeFinding {
    /// What was checked.
    pub what: String,
    /// Whether it is available.
    pub available: bool,
    /// Details: a version or a reason.
    pub detail: String,
    /// How to get it, if it is missing.
    pub fix: Option<String>,
}

impl ProbeFinding {
    fn has(what: &str, detail: impl Into<String>) -> Self {
        Self { what: what.into(), available: true, detail: detail.into(), fix: None }
    }

    fn lacks(what: &str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), available: false, detail: detail.into(), fix: Some(fix.into()) }
    }
}

/// Checks this machine, by trying where possible. It leaves nothing behind, and may be called from a process with several
/// threads.
pub fn probe() -> ProbeReport {
    let namespaces = namespaces();
    let landlock = landlock();
    let root = rustix::process::geteuid().is_root();
    let alone = landlock_alone();
    let isolation = match (namespaces.available, alone.available) {
        (true, _) => Some(Isolation::Namespaces),
        (false, true) => Some(Isolation::Landlock),
        (false, false) => None,
    };
    let mut findings = vec![namespaces, seccomp(), landlock, alone];
    if root {
        findings.push(idmapped_mounts(&std::env::temp_dir()));
    }
    findings.extend(limits());
    ProbeReport { isolation, findings }
}

/// The likeliest reason for a refused namespace or mount, its fix, and the alternative.
pub(crate) fn refused() -> String {
    format!("{}{}", reason(), instead())
}

/// Suggests the weaker isolation, where it works, in the words of [`Jail::isolation`], because each front end has its own name for the
/// setting.
pub(crate) fn instead() -> &'static str {
    match landlock_alone().available {
        true => ". Or set isolation to \"landlock\", which works here but protects less",
        false => "",
    }
}

/// Checks whether a jail can be made without namespaces.
fn landlock_alone() -> ProbeFinding {
    const WHAT: &str = "isolation without namespaces (landlock)";
    let abi = landlock::abi();
    if abi < landlock::SCOPED {
        let detail = landlock::lacking(abi, landlock::SCOPED);
        return ProbeFinding::lacks(WHAT, detail, "use Linux 6.12 or newer, booted with `landlock` in its `lsm=` list");
    }
    match HostUser::of(&Jail::new("probe")) {
        Ok(_) => ProbeFinding::has(WHAT, "files, signals and sockets; protects less than namespaces"),
        Err(error) => ProbeFinding::lacks(WHAT, error.to_string(), "run as an ordinary user"),
    }
}

fn reason() -> String {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    if read("/proc/sys/user/max_user_namespaces") == "0" {
        return "user namespaces are disabled: run `sysctl user.max_user_namespaces=15000`".into();
    }
    if !rustix::process::geteuid().is_root() {
        if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
            return "user namespaces are disabled for ordinary users: run `sysctl kernel.unprivileged_userns_clone=1`"
                .into();
        }
        if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
            return "AppArmor restricts user namespaces of ordinary users: run `sysctl \
                    kernel.apparmor_restrict_unprivileged_userns=0`, or give this program an AppArmor profile with \
                    `userns,`"
                .into();
        }
    }
    let filtered = read("/proc/self/status").lines().any(|line| line.trim_start() == "Seccomp:\t2");
    match filtered {
        true => "a container's seccomp filter forbids namespaces: run outside of the container, or start it with \
                 `--security-opt seccomp=unconfined`"
            .into(),
        false => "a security module forbids namespaces: run outside of the container".into(),
    }
}

/// How far the trial got.
const PRIVATE: u8 = 1;
const PROC: u8 = 2;
const DONE: u8 = 3;

fn namespaces() -> ProbeFinding {
    const WHAT: &str = "namespaces (user, mount, pid, net, ipc, uts)";
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if let Err(error) = Ids::choose("probe") {
        return ProbeFinding::lacks(WHAT, error.to_string(), format!("see the reason{}", instead()));
    }
    match try_namespaces() {
        Ok((DONE, _)) => ProbeFinding::has(WHAT, format!("Linux {release}")),
        Ok((PROC, errno)) => ProbeFinding::lacks(
            WHAT,
            format!("can't mount a new /proc: {}", std::io::Error::from_raw_os_error(errno)),
            format!(
                "the existing /proc is partly masked, as in most containers: run outside of the container or unmask \
                 its /proc{}",
                instead()
            ),
        ),
        Ok((_, libc::ENOSYS)) => {
            let detail = format!("Linux {release} has no mount_setattr");
            ProbeFinding::lacks(WHAT, detail, "use Linux 5.12 or newer")
        }
        Ok((_, errno)) => {
            let detail = format!("can't change mounts: {}", std::io::Error::from_raw_os_error(errno));
            ProbeFinding::lacks(WHAT, detail, refused())
        }
        Err(error) => ProbeFinding::lacks(WHAT, error.to_string(), refused()),
    }
}

/// Makes namespaces, and the two mounts that are the likeliest to be refused. The child only makes system calls, because the caller
/// may have several threads.
#[allow(unsafe_code)]
fn try_namespaces() -> std::io::Result<(u8, i32)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let kinds = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    // SAFETY: the child makes system calls, allocates nothing, and exits.
    match unsafe { sys::clone(kinds, None) }? {
        Cloned::Child { .. } => {
            let (step, errno) = match trial() {
                Ok(()) => (DONE, 0),
                Err((step, errno)) => (step, errno),
            };
            let [a, b, c, d] = errno.to_ne_bytes();
            let told = rustix::io::write(&write, &[step, a, b, c, d]);
            sys::exit(i32::from(told.is_err()))
        }
        Cloned::Parent { pid, .. } => {
            drop(write);
            let mut answer = [0_u8; 5];
            let length = rustix::io::read(&read, &mut answer);
            rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
            match length? {
                5 => Ok((answer[0], i32::from_ne_bytes([answer[1], answer[2], answer[3], answer[4]]))),
                _ => Err(std::io::Error::other("the trial process died")),
            }
        }
    }
}

fn trial() -> Result<(), (u8, i32)> {
    use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
    let private = || -> std::io::Result<()> {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let root = rustix::fs::open(c"/", flags, rustix::fs::Mode::empty())?;
        let attr = MountAttr { propagation: libc::MS_PRIVATE, ..Default::default() };
        sys::mount_setattr(root.as_fd(), true, attr)
    };
    private().map_err(|error| (PRIVATE, error.raw_os_error().unwrap_or(0)))?;
    let proc = || -> rustix::io::Result<()> {
        let context = fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID).map(drop)
    };
    proc().map_err(|error| (PROC, error.raw_os_error()))
}

fn seccomp() -> ProbeFinding {
    match fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) if actions.split_ascii_whitespace().any(|action| action == "errno") => {
            ProbeFinding::has("seccomp", "filters work")
        }
        Ok(actions) => ProbeFinding::lacks("seccomp", format!("only {}", actions.trim()), "use Linux 4.14 or newer"),
        Err(error) => ProbeFinding::lacks("seccomp", error.to_string(), "use a kernel with CONFIG_SECCOMP_FILTER"),
    }
}

fn landlock() -> ProbeFinding {
    const WHAT: &str = "Landlock";
    match landlock::abi() {
        abi @ 0..landlock::REFER => ProbeFinding::lacks(
            WHAT,
            format!(
                "{}; commands can change podbayd's records in their sandbox",
                landlock::lacking(abi, landlock::REFER)
            ),
            "use Linux 5.19 or newer, booted with `lsm=landlock,…` (the current list is in /sys/kernel/security/lsm)",
        ),
        abi @ landlock::REFER..landlock::SCOPED => ProbeFinding::has(
            WHAT,
            format!(
                "ABI {abi}: protects files and podbayd's records; signals and abstract sockets from ABI 6 (Linux \
                 6.12) on"
            ),
        ),
        abi => ProbeFinding::has(
            WHAT,
            format!("ABI {abi}: protects files, podbayd's records, signals and abstract sockets"),
        ),
    }
}

/// Checks the file system of one directory.
pub(crate) fn idmapped_mounts(directory: &Path) -> ProbeFinding {
    let what = format!("idmapped mounts on {}", directory.display());
    let fix = "keep workspaces on ext4, xfs, btrfs or tmpfs, or run as an ordinary user";
    let tried = || -> Result<(), String> {
        let ids = Ids::choose("probe").map_err(|error| error.to_string())?;
        let real = fs::canonicalize(directory).map_err(|error| error.to_string())?;
        let namespace = ids.idmap(0, 0).map_err(|error| error.to_string())?.ok_or("only root needs them")?;
        let tree = host_mounts::detached(&real).map_err(|error| error.to_string())?;
        ids::apply_idmap(&tree, &namespace).map_err(|error| error.to_string())
    };
    match tried() {
        Ok(()) => ProbeFinding::has(&what, "files that a sandbox makes belong to the directory's owner"),
        Err(reason) => ProbeFinding::lacks(&what, reason, fix),
    }
}

fn limits() -> Vec<ProbeFinding> {
    let wanted = JailLimits { memory: Some(64 << 20), cpu: Some(1.0), processes: Some(64), ..JailLimits::default() };
    let (group, report) = Cgroup::make("probe", &wanted);
    let mut findings: Vec<ProbeFinding> = report
        .into_iter()
        .map(|entry| {
            let what = format!("limit on {}", entry.limit);
            match (entry.by, entry.limit.as_str()) {
                (Some(by), _) => ProbeFinding::has(&what, format!("by {by}")),
                (None, "processes") => ProbeFinding::has(&what, "by rlimit, per sandbox"),
                (None, _) => ProbeFinding::lacks(
                    &what,
                    entry.note.unwrap_or_default(),
                    "run as root, or under `systemd-run --user --scope -p Delegate=yes`",
                ),
            }
        })
        .collect();
    if let Some(Err(failure)) = group.map(|group| group.remove()) {
        findings.push(ProbeFinding::lacks("removing cgroups", failure.to_string(), "remove it manually"));
    }
    findings.push(ProbeFinding::has(
        "limit on disk",
        "all temporary files together by tmpfs; in host directories each file by rlimit, not their sum",
    ));
    findings
}
