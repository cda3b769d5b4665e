//! podbayd: the small static daemon in every sandbox that does the work.
//!
//! [`serve`] answers requests, [`connect`] connects standard input and output to the running daemon, [`exchange`] hands it
//! single pieces. A [`shim`] runs beside each command, forked by the [`zygote`]; [`exec_registry`] is what podbayd knows of
//! commands, [`exec_store`] what is on disk. [`supervise`] runs outside each local sandbox.
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic where output can't be written")]

pub mod command_restrictions;
pub mod connect;
mod descriptors;
pub mod exchange;
pub mod exec_registry;
pub mod exec_store;
mod oom;
mod peer;
pub mod sealed;
pub mod self_install;
pub mod serve;
pub mod shim;
pub mod shim_protocol;
mod socket;
mod state_file;
pub mod stderr_log;
pub mod supervise;
pub mod sys;
pub mod zygote;
