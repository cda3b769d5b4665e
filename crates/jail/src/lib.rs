//! Runs a function in a confined Linux process.
//!
//! [`spawn`] runs a function as PID 1 of new user, mount, pid, net, ipc, uts and cgroup namespaces: with the host's programs
//! read-only, a reduced `/etc`, private `/tmp`, `/dev` and `/proc`, a writable workspace, and nothing else. The process has no
//! capabilities, and none of the caller's descriptors or environment; a seccomp filter and Landlock back up the namespaces. It
//! works for root, whose jails each get an unprivileged host uid, and for ordinary users. [`probe`] reports what a machine
//! supports, and how to get what is missing. `spawn` refuses rather than confine less than requested; the exception is limits:
//! [`Jailed::limits`] says what enforces each.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use podbay_jail::{Jail, JailLimits, spawn};
//!
//! let mut jail = Jail::new("pb-example");
//! jail.workspace = Some("/srv/project".into());
//! jail.limits = JailLimits { memory: Some(512 << 20), processes: Some(256), ..JailLimits::default() };
//! let mut jailed = spawn(&jail, &[], || {
//!     let done = std::process::Command::new("make").status();
//!     i32::from(!done.is_ok_and(|status| status.success()))
//! })?;
//! println!("{:?}", jailed.wait()?);
//! jailed.cleanup()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is not protected
//! - The kernel is shared: a hole in it is a hole in the jail. For hostile code of many tenants, use a machine or a VM for each.
//! - Whatever is given to a jail can be used: it can fill a writable mount (the size of each file is limited, not their sum),
//!   connect to a given socket, and with `network: host` reach the host's loopback interface.
//! - An ordinary user's jail runs as that user, with the user's groups. It can't see the user's files because they aren't
//!   mounted, not because they belong to somebody else.
//! - All of the host's world-readable programs can be run, and `/usr` can be read.
//! - Without cgroups (for an ordinary user without delegation), memory and processor time aren't limited.
//!
//! # Which crates, and why
//! - **rustix** for system calls: typed, well maintained, no libc underneath. What it lacks (`clone` with namespaces,
//!   `mount_setattr`, `close_range`, a few `prctl`s) is called through **libc** in `sys`.
//! - **seccompiler** (rust-vmm, used by Firecracker) compiles the filter; libseccomp would be a C library in a static daemon.
//!   A filter of seccompiler's has one error number for all denied calls, so the calls that "don't exist" are put before it by
//!   hand.
//! - **landlock**, by Landlock's own maintainers, knows the ABIs.
//! - Considered and rejected: bubblewrap (a program to install on every machine); hakoniwa 1.8 (the closest crate: LGPL, mounts
//!   by path without `open_tree` or id maps, seccomp by the C library, runs programs by `execve`, not functions); youki's
//!   libcontainer 0.7 (an OCI runtime, over a hundred crates); birdcage (GPL).
//!
//! # How a jail starts
//! The parent opens the host's directories (if it is root, with their id maps), makes the cgroups, clones, writes the id maps
//! and lets the child continue. The child enters the cgroups, switches to the user inside, assembles the root file system from
//! detached mounts, enters it, closes all descriptors, drops its privileges, applies Landlock and the seccomp filter, and reports
//! success. An error on the way comes back as a [`FailedStep`] with its fix.
#![cfg(target_os = "linux")]

mod cgroup;
mod command_confinement;
mod error;
mod etc;
mod host_mounts;
mod ids;
mod jail;
mod jailed;
mod landlock;
mod limits;
mod privileges;
mod probe;
pub mod process_tree;
mod rootfs;
mod seccomp;
mod seccomp_notify;
mod spawn;
mod sys;
mod without_namespaces;

pub use cgroup::{Cgroup, CgroupProcs, can_limit_memory, machine_memory, sweep};
pub use command_confinement::{CommandConfinement, PreparedConfinement};
pub use error::{FailedStep, JailError};
pub use host_mounts::PROGRAMS;
pub use ids::{HostUser, own_id};
pub use jail::{ARTEFACTS, INSIDE_GID, INSIDE_UID, INSIDE_USER, Isolation, Jail, Mount, Network, STATE, WORKSPACE};
pub use jailed::{JailExit, Jailed};
pub use landlock::domain::{Domain, ESCALATION, Entered};
pub use limits::{InForce, JailLimits};
pub use probe::{ProbeFinding, ProbeReport, probe};
pub use seccomp::CommandFilter;
pub use seccomp_notify::SeccompListener;
pub use spawn::spawn;
