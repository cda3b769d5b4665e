//! Sandboxes on any Kubernetes cluster.
//!
//! [`Raw`](raw::Raw) makes them as plain pods: nothing has to be installed. A [channel] reaches the podbayd in a pod, and the
//! bootstrap puts it there.

mod bootstrap;
pub mod channel;
mod clock;
mod cluster;
mod deadline;
pub mod doctor;
mod error;
pub mod install;
mod listing;
pub mod names;
mod pod;
mod proxy;
pub mod raw;
mod renewal;
mod retry;
pub mod rights;

pub use cluster::{Access, Cluster};
pub use error::{Error, Result};
