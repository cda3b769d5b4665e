//! Sandboxes on any Kubernetes cluster.
//!
//! [`Raw`](raw::Raw) makes them as plain pods: nothing has to be installed. A [channel] reaches the podbayd in a pod, and the
//! bootstrap puts it there.

mod bootstrap;
pub mod channel;
mod clock;
mod cluster;
pub mod doctor;
mod error;
pub mod install;
mod listing;
pub mod names;
mod pod;
pub mod raw;
mod retry;
pub mod rights;

pub use cluster::{Access, Cluster};
pub use error::{Error, Result};
