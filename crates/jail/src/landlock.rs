//! Landlock: the second line of defence behind the mounts, and the only one where there are no namespaces.

pub(crate) mod domain;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::error::{FailedStep, Step};
use crate::{etc, host_mounts};

/// The newest ABI that is used; older kernels enforce what they know of it.
const KNOWN: ABI = ABI::V6;

/// The first ABI that restricts signals and abstract sockets (Linux 6.12). A jail without namespaces needs it: otherwise its
/// processes could kill all of the user's processes.
pub(crate) const SCOPED: i32 = 6;

/// The first ABI that can allow moving and linking files between directories (Linux 5.19). ABI 1 always forbids that, so it is
/// of no use here.
pub(crate) const REFER: i32 = 2;

/// The kernel's Landlock ABI; 0 without Landlock.
pub(crate) fn abi() -> i32 {
    asked().unwrap_or(0)
}

/// The kernel's answer, or its error number. Asked once, because tests lower it with an environment variable, and a jail
/// replaces the environment.
fn asked() -> Result<i32, i32> {
    static ANSWER: std::sync::OnceLock<Result<i32, i32>> = std::sync::OnceLock::new();
    *ANSWER.get_or_init(|| match (ask(), older()) {
        (Ok(_), Some(0)) => Err(libc::ENOSYS),
        (Ok(abi), Some(older)) => Ok(abi.min(older)),
        (answer, _) => answer,
    })
}

#[allow(unsafe_code)]
fn ask() -> Result<i32, i32> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the call takes no attributes and makes nothing.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    match i32::try_from(abi) {
        Ok(abi @ 1..) => Ok(abi),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOSYS)),
    }
}

/// The ABI of an older kernel that tests imitate on this one.
#[cfg(feature = "older-landlock")]
fn older() -> Option<i32> {
    std::env::var("PODBAY_LANDLOCK_ABI").ok()?.parse().ok()
}

#[cfg(not(feature = "older-landlock"))]
fn older() -> Option<i32> {
    None
}

/// The newest ABI that both the kernel and this program know.
pub(crate) fn known() -> ABI {
    ABI::from(abi().min(KNOWN as i32))
}

/// Why a feature of a later ABI isn't available.
pub(crate) fn lacking(abi: i32, wanted: i32) -> String {
    match (abi, asked()) {
        (0, Err(libc::EPERM)) => "the container's seccomp profile forbids Landlock".into(),
        (0, Err(libc::EOPNOTSUPP)) => "Landlock is off in this kernel: boot with `landlock` in its `lsm=` list".into(),
        (0, _) => "this kernel has no Landlock".into(),
        _ => {
            let release = if wanted >= SCOPED { "6.12" } else { "5.19" };
            format!("this kernel has Landlock ABI {abi}; ABI {wanted} (Linux {release}) is needed")
        }
    }
}

/// Restricts this process in namespaces: it can write to these paths only, and reach no abstract socket and no process
/// outside of the jail.
pub(crate) fn around(writable: &[PathBuf]) -> Result<RulesetStatus, FailedStep> {
    if abi() < REFER {
        return Ok(RulesetStatus::NotEnforced);
    }
    let known = known();
    let write = AccessFs::from_write(known);
    // Programs write to devices and to /proc/self; the mounts make everything else there read-only.
    let devices = (AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev) & write;
    let restricted = || -> Result<RulesetStatus, Box<dyn std::error::Error + Send + Sync>> {
        let mut rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(write)?;
        if abi() >= SCOPED {
            rules = rules.scope(Scope::AbstractUnixSocket | Scope::Signal)?;
        }
        let mut rules = rules.create()?;
        let places = writable.iter().map(|place| (place.as_path(), write));
        let fixed = ["/dev", "/proc"].map(|place| (Path::new(place), devices));
        for (place, access) in places.chain(fixed) {
            rules = rules.add_rule(PathBeneath::new(PathFd::new(place)?, fitting(place, access)))?;
        }
        Ok(rules.restrict_self()?.ruleset)
    };
    restricted().map_err(std::io::Error::other).step(|| "apply Landlock".into())
}

/// Removes the rights of directories from a rule on a single file, which the kernel would reject.
fn fitting(place: &Path, access: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    match place.is_dir() {
        true => access,
        false => access & AccessFs::from_file(KNOWN),
    }
}

/// What a jail without namespaces may open.
pub(crate) struct Openable {
    /// Programs, libraries and their settings. Paths that don't exist on this host are skipped.
    readable: Vec<PathBuf>,
    /// Single device files.
    devices: Vec<PathBuf>,
    /// The caller's paths, opened without following links, and whether they are writable.
    pub(crate) given: Vec<(OwnedFd, bool)>,
    /// Files in /proc are writable: podbayd sets the `oom_score_adj` of its commands.
    pub(crate) processes: bool,
    /// TCP ports can be bound, and connections made.
    network: bool,
}

/// Files in `/etc` beside [`etc::TAKEN`]. In namespaces they are the jail's own, here they are the host's.
const SETTINGS: [&str; 6] = ["passwd", "group", "hosts", "hostname", "nsswitch.conf", "host.conf"];

impl Openable {
    /// The host's programs and the files that they need.
    pub(crate) fn system(network: bool) -> Self {
        let resolver = network.then_some("resolv.conf");
        let etc = etc::TAKEN.iter().chain(&SETTINGS).copied().chain(resolver);
        let etc = etc.map(|name| Path::new("/etc").join(name));
        let programs = host_mounts::PROGRAMS.iter().map(|name| Path::new("/").join(name));
        let devices = host_mounts::DEVICES.iter().filter(|(name, ..)| *name != "tty");
        Self {
            readable: programs.chain(etc).chain([PathBuf::from("/proc")]).collect(),
            devices: devices.map(|(name, ..)| Path::new("/dev").join(name)).collect(),
            given: Vec::new(),
            processes: false,
            network,
        }
    }
}

type Refused = Box<dyn std::error::Error + Send + Sync>;

/// Restricts this process without namespaces: it can open these files only. The kernel must enforce all of it.
pub(crate) fn alone(openable: &Openable) -> Result<(), FailedStep> {
    let applied = || -> Result<(), Refused> {
        match rules(openable, &[Scope::AbstractUnixSocket, Scope::Signal])?.restrict_self()?.ruleset {
            RulesetStatus::FullyEnforced => Ok(()),
            other => Err(format!("only {other:?}").into()),
        }
    };
    applied().map_err(std::io::Error::other).step(|| "apply Landlock".into())
}

/// The same rules without the scopes, as a descriptor that can be applied between fork and exec.
pub(crate) fn unapplied(openable: &Openable) -> Result<OwnedFd, FailedStep> {
    let made = || -> Result<OwnedFd, Refused> {
        Option::<OwnedFd>::from(rules(openable, &[])?).ok_or_else(|| "the kernel has no Landlock".into())
    };
    made().map_err(std::io::Error::other).step(|| "prepare Landlock".into())
}

fn rules(openable: &Openable, scopes: &[Scope]) -> Result<RulesetCreated, Refused> {
    let read = AccessFs::from_read(KNOWN);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let mut rules =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(KNOWN))?;
    if !openable.network {
        rules = rules.handle_access(AccessNet::from_all(KNOWN))?;
    }
    for scope in scopes {
        rules = rules.scope(*scope)?;
    }
    let mut rules = rules.create()?;
    let read_only = openable.readable.iter().map(|place| (place.as_path(), read));
    let devices = openable.devices.iter().map(|place| (place.as_path(), device));
    let processes = openable.processes.then_some((Path::new("/proc"), AccessFs::WriteFile.into()));
    for (place, access) in read_only.chain(devices).chain(processes).filter(|(place, _)| place.exists()) {
        rules = rules.add_rule(PathBeneath::new(PathFd::new(place)?, fitting(place, access)))?;
    }
    for (fd, writable) in &openable.given {
        let stat = rustix::fs::fstat(fd)?;
        let mut access = if *writable { AccessFs::from_all(KNOWN) } else { read };
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            access &= AccessFs::from_file(KNOWN);
        }
        rules = rules.add_rule(PathBeneath::new(fd, access))?;
    }
    Ok(rules)
}
