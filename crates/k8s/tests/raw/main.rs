//! Sandboxes as plain pods, on a real cluster, with an account that may do no more than is needed.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod admission;
mod bootstrap;
mod environment;
mod exec;
mod faults;
mod in_cluster;
mod lifetime;
mod live;
mod namespaces;
mod network;
mod pods;
mod pool;
mod protection;
mod provider;
mod race;
mod robustness;
mod setup;
mod stuck;
mod user_namespace;
mod workloads;
