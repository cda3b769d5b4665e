//! Sandboxes as plain pods, on a real cluster, with an account that may do no more than is needed.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod exec;
mod faults;
mod network;
mod operations;
mod pods;
mod provider;
