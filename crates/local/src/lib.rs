//! Sandboxes on this machine: Linux namespaces, no cluster.
//!
//! A sandbox is a directory below the [home](Home), a supervisor process, and behind it podbayd in a jail of its own. The
//! directory is made whole elsewhere and put into its place by one rename, so that of two creators of one name one wins and
//! the other finds the winner's.
#![cfg(target_os = "linux")]

mod create;
mod describe;
mod error;
mod home;
mod options;
mod program;
mod provider;
mod record;
mod remains;
mod trust;
mod workspace;

pub use error::{Error, Result};
pub use home::Home;
pub use options::{Options, can_limit_memory, default_limits, parse_mount};
pub use podbay_jail::{Finding, InForce, Isolation, Jail, Limits, Mount, Network, Report, probe};
pub use provider::{Description, Local};
