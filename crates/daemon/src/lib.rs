//! podbayd: the small static daemon in every sandbox that does the work.
//!
//! [`serve`] answers operations on byte streams, [`connect`] brings a pair of descriptors to the running daemon,
//! [`shim`] looks after one command, [`supervise`] after one local sandbox.
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic where output can't be written")]

pub mod connect;
mod descriptors;
pub mod exec_registry;
pub mod exec_store;
mod oom;
mod process_tree;
pub mod sealed;
pub mod self_install;
pub mod serve;
pub mod shim;
pub mod shim_protocol;
mod state_file;
pub mod stderr_log;
pub mod supervise;
pub mod sys;
pub mod walls;
pub mod zygote;
