//! What this machine can do, found out by doing it.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::process::WaitOptions;
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::ids::{self, Ids, Who};
use crate::jail::{Isolation, Jail, Limits};
use crate::sys::{self, Cloned, MountAttr};
use crate::{host_mounts, landlock};

/// What a jail can have on this machine, for this user.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The strongest isolation that works; none where a jail can't be made at all.
    pub isolation: Option<Isolation>,
    /// Everything that was looked at.
    pub findings: Vec<Finding>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is.
    pub what: String,
    /// Whether it can be had.
    pub available: bool,
    /// What was found: a version, a reason.
    pub detail: String,
    /// The exact remedy, where it is missing and there is one.
    pub fix: Option<String>,
}

impl Finding {
    fn has(what: &str, detail: impl Into<String>) -> Self {
        Self { what: what.into(), available: true, detail: detail.into(), fix: None }
    }

    fn lacks(what: &str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), available: false, detail: detail.into(), fix: Some(fix.into()) }
    }
}

/// Looks at this machine. It leaves nothing behind; what can be tried is tried, not guessed. May be
/// called with many threads running.
pub fn probe() -> Report {
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
    Report { isolation, findings }
}

/// The likeliest reason for a refused namespace or mount, its fix, and what can be had instead.
pub(crate) fn refused() -> String {
    format!("{}{}", reason(), instead())
}

/// What to say of the weaker isolation to those who can't have the default one.
pub(crate) fn instead() -> &'static str {
    match landlock_alone().available {
        true => ". Or use `--isolation landlock`, which works here and protects less",
        false => "",
    }
}

/// Whether a jail can be made without namespaces.
fn landlock_alone() -> Finding {
    const WHAT: &str = "isolation without namespaces (--isolation landlock)";
    let abi = landlock::abi();
    if abi < landlock::SCOPED {
        let detail = format!("Landlock has ABI {abi}, and signals are fenced from ABI 6 on");
        return Finding::lacks(WHAT, detail, "Linux 6.12 or newer with `landlock` among its `lsm=`");
    }
    match Who::of(&Jail::new("probe")) {
        Ok(_) => Finding::has(WHAT, "files, signals, sockets; protects less than namespaces"),
        Err(error) => Finding::lacks(WHAT, error.to_string(), "run as an ordinary user"),
    }
}

fn reason() -> String {
    let read = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    if read("/proc/sys/user/max_user_namespaces") == "0" {
        return "user namespaces are switched off: sysctl user.max_user_namespaces=15000".into();
    }
    if !rustix::process::geteuid().is_root() {
        if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
            return "ordinary users may not make user namespaces here: sysctl kernel.unprivileged_userns_clone=1"
                .into();
        }
        if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
            return "AppArmor keeps ordinary users from using user namespaces: sysctl \
                    kernel.apparmor_restrict_unprivileged_userns=0, or give this program an AppArmor profile with \
                    `userns,`"
                .into();
        }
    }
    let filtered = read("/proc/self/status").lines().any(|line| line.trim_start() == "Seccomp:\t2");
    match filtered {
        true => "the seccomp filter of a container forbids namespaces here: run outside of it, start it with \
                 `--security-opt seccomp=unconfined`"
            .into(),
        false => "a security module forbids namespaces here: run outside of the container".into(),
    }
}

/// Where the trial got to.
const PRIVATE: u8 = 1;
const PROC: u8 = 2;
const DONE: u8 = 3;

fn namespaces() -> Finding {
    const WHAT: &str = "namespaces (user, mount, pid, net, ipc, uts)";
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if let Err(error) = Ids::choose("probe") {
        return Finding::lacks(WHAT, error.to_string(), format!("see there{}", instead()));
    }
    match try_namespaces() {
        Ok((DONE, _)) => Finding::has(WHAT, format!("Linux {release}")),
        Ok((PROC, errno)) => Finding::lacks(
            WHAT,
            format!("a new /proc can't be mounted: {}", std::io::Error::from_raw_os_error(errno)),
            format!(
                "the present /proc is partly hidden, as in most containers: run outside of the container or unmask \
                 its /proc{}",
                instead()
            ),
        ),
        Ok((_, libc::ENOSYS)) => {
            let detail = format!("Linux {release} has no mount_setattr");
            Finding::lacks(WHAT, detail, "Linux 5.12 or newer is needed")
        }
        Ok((_, errno)) => {
            let detail = format!("mounts can't be changed: {}", std::io::Error::from_raw_os_error(errno));
            Finding::lacks(WHAT, detail, refused())
        }
        Err(error) => Finding::lacks(WHAT, error.to_string(), refused()),
    }
}

/// Makes the namespaces and the two mounts that are refused first, in a child that only makes system
/// calls: the caller may have threads.
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
    match unsafe { sys::clone(kinds) }? {
        Cloned::Child => {
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

fn seccomp() -> Finding {
    match fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) if actions.split_ascii_whitespace().any(|action| action == "errno") => {
            Finding::has("seccomp", "filters can be installed")
        }
        Ok(actions) => Finding::lacks("seccomp", format!("only {}", actions.trim()), "a kernel from 4.14 on is needed"),
        Err(error) => Finding::lacks("seccomp", error.to_string(), "a kernel with CONFIG_SECCOMP_FILTER is needed"),
    }
}

fn landlock() -> Finding {
    const WHAT: &str = "Landlock";
    match landlock::abi() {
        abi @ 0..landlock::REFER => Finding::lacks(
            WHAT,
            format!(
                "{}; commands can change podbayd's records in their sandbox",
                landlock::lacking(abi, landlock::REFER)
            ),
            "Linux 5.19 or newer, booted with `lsm=landlock,…` (the present list is in /sys/kernel/security/lsm)",
        ),
        abi @ landlock::REFER..landlock::SCOPED => Finding::has(
            WHAT,
            format!("ABI {abi}: files and podbayd's records; signals and abstract sockets from ABI 6 (Linux 6.12) on"),
        ),
        abi => Finding::has(WHAT, format!("ABI {abi}: files, podbayd's records, signals, abstract sockets")),
    }
}

/// Tries the file system of one directory: each has its own answer.
pub(crate) fn idmapped_mounts(directory: &Path) -> Finding {
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
        Ok(()) => Finding::has(&what, "a sandbox's files belong to the directory's owner"),
        Err(reason) => Finding::lacks(&what, reason, fix),
    }
}

fn limits() -> Vec<Finding> {
    let wanted = Limits { memory: Some(64 << 20), cpu: Some(1.0), processes: Some(64), ..Limits::default() };
    let (group, report) = Cgroup::make("probe", &wanted);
    let mut findings: Vec<Finding> = report
        .into_iter()
        .map(|entry| {
            let what = format!("limit on {}", entry.limit);
            match (entry.by, entry.limit.as_str()) {
                (Some(by), _) => Finding::has(&what, format!("by {by}")),
                (None, "processes") => Finding::has(&what, "by rlimit, in the sandbox's own user namespace"),
                (None, _) => Finding::lacks(
                    &what,
                    entry.note.unwrap_or_default(),
                    "run as root, or under `systemd-run --user --scope -p Delegate=yes`",
                ),
            }
        })
        .collect();
    if let Some(Err(failure)) = group.map(|group| group.remove()) {
        findings.push(Finding::lacks("removing cgroups", failure.to_string(), "remove it by hand"));
    }
    findings.push(Finding::has(
        "limit on disk",
        "everything temporary together by tmpfs; of a host directory each file by rlimit, not their sum",
    ));
    findings
}
