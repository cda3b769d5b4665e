//! Sandboxes on this machine: Linux namespaces, no cluster.
//!
//! A sandbox is a directory in the [home](Home), a supervisor process, and podbayd in a jail. The directory is assembled
//! elsewhere and moved into place with one rename, so that of two creators that use the same name, one wins and the other
//! gets the winner's sandbox.
#![cfg(target_os = "linux")]

mod create;
mod describe;
mod error;
mod home;
mod listing;
mod options;
mod podbayd_program;
mod provider;
mod sandbox_dir;
mod teardown;
mod trusted_dir;
mod workspace;

pub use describe::LocalDescription;
pub use error::{Error, Result};
pub use home::Home;
pub use options::{Options, can_limit_memory, default_limits, parse_mount};
pub use podbay_jail::{
    InForce, Isolation, Jail, JailLimits, Mount, Network, PROGRAMS, ProbeFinding, ProbeReport, probe,
};
pub use provider::Local;
