//! Starts a function in a confined Linux process.
//!
//! [`spawn`] runs a function as PID 1 of new user, mount, pid, net, ipc, uts and cgroup namespaces:
//! read-only programs of the host, a reduced `/etc`, private `/tmp`, `/dev` and `/proc`, a writable
//! workspace, and nothing else. It has no capability, no descriptor and no environment of the caller's;
//! a seccomp filter and Landlock stand behind the namespaces. It works for root, whose sandboxes get an
//! unprivileged host uid each, and for an ordinary user. [`probe`] says what a machine can do, and how
//! to get what is missing. It refuses rather than confine less than was asked for; the exception are
//! limits, of which [`Jailed::limits`] says what enforces each.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use podbay_jail::{Jail, Limits, spawn};
//!
//! let mut jail = Jail::new("pb-example");
//! jail.workspace = Some("/srv/project".into());
//! jail.limits = Limits { memory: Some(512 << 20), processes: Some(256), ..Limits::default() };
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
//! - The kernel is shared: a hole in it is a hole in the jail. For hostile code of many tenants use a
//!   machine or a VM for each.
//! - What is given is given: a writable mount can be filled (its files are bounded one by one, not
//!   together), a given socket can be used, `network: host` reaches the host's loopback.
//! - An ordinary user's sandbox is that user to the kernel, with the user's groups. It sees none of the
//!   user's files because they are not there, not because they belong to somebody else.
//! - All readable programs of the host can be run, and `/usr` can be read.
//! - Without cgroups (an ordinary user without delegation) memory and processor are not limited.
//!
//! # Which crates, and why
//! - **rustix** for system calls: typed, well kept, no libc underneath. What it lacks (`clone` with
//!   namespaces, `mount_setattr`, `close_range`, a few `prctl`s) is called through **libc** in `sys`.
//! - **seccompiler** (rust-vmm, used by Firecracker) compiles the filter; libseccomp would be a C library
//!   in a static daemon. It has one answer for each filter, so the calls that «don't exist» are put
//!   before it by hand.
//! - **landlock**, by Landlock's own maintainers, knows the ABIs.
//! - Weighed and left: bubblewrap (a program to install on every machine); hakoniwa 1.8 (the nearest
//!   crate: LGPL, mounts by path without `open_tree` or id maps, seccomp by the C library, runs programs
//!   by `execve`, not functions); youki's libcontainer 0.7 (an OCI runtime, over a hundred crates);
//!   birdcage (GPL).
//!
//! # How a start goes
//! The maker opens what it may (root: the host's trees, with their id maps), clones, writes the id maps,
//! puts the child into its cgroups and lets it go on. The child becomes the inside user, assembles the
//! tree from detached mounts, enters it, closes all descriptors, gives up its privileges, puts Landlock
//! and the filter in place, and says so. An error on the way comes back as a [`FailedStep`] with its fix.
#![cfg(target_os = "linux")]

mod cgroup;
mod command_confinement;
mod error;
mod etc;
mod host_dirs;
mod host_mounts;
mod ids;
mod jail;
mod jailed;
mod landlock;
mod limits;
mod privileges;
mod probe;
mod rootfs;
mod seccomp;
mod seccomp_notify;
mod spawn;
pub mod supervision;
mod sys;
mod without_namespaces;

pub use cgroup::{Cgroup, can_limit_memory, machine_memory, sweep};
pub use command_confinement::{CommandConfinement, PreparedConfinement, end_descendants};
pub use error::{FailedStep, JailError};
pub use host_dirs::make_host_dirs;
pub use ids::own_id;
pub use jail::{
    ARTEFACTS, INSIDE_GID, INSIDE_UID, INSIDE_USER, Isolation, Jail, Limits, Mount, Network, STATE, WORKSPACE,
};
pub use jailed::{Exit, Jailed};
pub use landlock::domain::{Domain, ESCALATION, Entered};
pub use limits::InForce;
pub use probe::{Finding, Report, probe};
pub use seccomp::CommandFilter;
pub use seccomp_notify::SeccompListener;
pub use spawn::spawn;
