//! podbayd: the small static daemon in every sandbox that does the work.
//!
//! [`serve`] answers operations on byte streams, [`connect`] brings a pair of descriptors to the running daemon,
//! [`shim`] looks after one command, [`supervise`] after one local sandbox.
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic where output can't be written")]

pub mod complaint;
pub mod connect;
mod descriptors;
pub mod exec;
mod oom;
mod process_tree;
pub mod sealed;
pub mod serve;
pub mod settle;
pub mod shim;
mod state_file;
pub mod supervise;
pub mod sys;
