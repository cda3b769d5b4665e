//! Sandboxes on any Kubernetes cluster.
//!
//! [`Raw`](raw::Raw) creates them as plain pods: nothing has to be installed on the cluster. A [channel] reaches the podbayd
//! in a pod, and the bootstrap puts it there.

pub mod agent_sandbox;
mod api;
mod bootstrap;
pub mod channel;
mod cleanup;
mod cluster;
pub mod doctor;
mod error;
#[cfg(test)]
mod field_examples;
mod heartbeat;
pub mod install;
mod inventory;
pub mod keys;
mod lifetime;
pub mod names;
mod pod;
pub mod raw;
pub mod rights;
mod sandbox_object;
mod sandbox_spec;
#[cfg(test)]
mod test_certificates;

pub use cluster::{Access, Cluster};
pub use error::{Error, Result};
pub use pod::container::Container;
