//! Starts a function in a confined Linux process: namespaces, seccomp, Landlock and limits.
#![cfg(target_os = "linux")]

mod cgroup;
mod error;
mod etc;
mod fence;
mod filter;
mod guardian;
mod ids;
mod jail;
mod jailed;
mod limits;
mod privileges;
mod probe;
mod source;
mod spawn;
mod sys;
mod tree;

pub use cgroup::{Cgroup, sweep};
pub use error::{Failure, JailError};
pub use jail::{
    ARTEFACTS, INSIDE_GID, INSIDE_UID, INSIDE_USER, Isolation, Jail, Limits, Mount, Network, STATE, WORKSPACE,
};
pub use jailed::{Exit, Jailed};
pub use limits::InForce;
pub use probe::{Finding, Report, probe};
pub use spawn::spawn;
