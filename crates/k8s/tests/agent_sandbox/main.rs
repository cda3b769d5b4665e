//! Sandboxes by claims, with upstream's own controller on a real cluster, and an account that may do no more than is needed.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod claims;
mod doctor;
mod environment;
mod failures;
mod faults;
mod fixture;
mod hostile;
mod in_cluster;
mod lifetime;
mod many;
mod suspension;
