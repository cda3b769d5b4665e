//! A real Kubernetes for Podbay's tests: one node, up in seconds, gone without a trace.
//!
//! The programs are compiled once from Go modules and kept in the user's cache directory ([`Cache`]). A cluster lives in
//! namespaces and cgroups of its own; its API server is reached through a port of the host's loopback interface.
//! `cargo xtask cluster` is this library's command line.
//!
//! A test begins like this, and is left out by itself where no cluster can run:
//!
//! ```no_run
//! # #[cfg(feature = "test-client")]
//! # async fn test() -> anyhow::Result<()> {
//! let Some(cluster) = rig::cluster().await? else { return Ok(()) };
//! let namespace = cluster.namespace(vec![rig::rule("", ["pods"], ["create", "get", "delete"])]).await?;
//! let client = namespace.client(); // may do what the rules say, in this namespace, and nothing else
//! # Ok(()) }
//! ```

mod account;
mod addon;
mod availability;
mod cache;
mod cgroup;
mod cluster;
pub mod faults;
mod image;
pub mod packages;
mod pki;
mod prepare;
mod process;
mod progress;
mod toolchain;

#[cfg(feature = "test-client")]
mod access;
#[cfg(feature = "test-client")]
mod client;
#[cfg(feature = "test-client")]
mod inside;
#[cfg(feature = "test-client")]
mod namespace;

pub use addon::AddOn;
pub use availability::{Decision, Reason, available, decision};
pub use cache::Cache;
pub use cluster::{Cluster, Flavor, Status, default_name};
pub use image::{
    BUSYBOX, DEBIAN, File, Image, Layer, NONROOT, PODBAY_RUNTIME, PODBAY_RUNTIME_SMALL, PYTHON_RUNTIME, Runtime,
    SANDBOXD, stock_runtime,
};
pub use prepare::prepare;
pub use toolchain::KUBERNETES;

/// The RuntimeClass of the runtime that most clusters have.
pub const RUNC: &str = "runc";

#[cfg(feature = "test-client")]
pub use access::Access;
#[cfg(feature = "test-client")]
pub use client::{TestCluster, cluster, cluster_named, cluster_with};
#[cfg(feature = "test-client")]
pub use inside::inside;
#[cfg(feature = "test-client")]
pub use namespace::{Namespace, rule};
