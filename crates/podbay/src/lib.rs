//! Sandboxes for AI agents, on this machine and on any Kubernetes cluster.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use podbay::provider::{Provider, Wanted};
//!
//! let local = podbay::local::Local::new()?;
//! let made = local.get_or_create(&Wanted::default()).await?;
//! let output = made.sandbox.run("python3 -c 'print(2 + 2)'").await?;
//! assert_eq!(output.text(), "4\n");
//! local.delete(&made.id).await?;
//! # Ok(()) }
//! ```

pub mod audit;
pub mod config;
mod guarded;
pub mod manager;
pub mod policy;

pub use guarded::{Guarded, GuardedExec};
pub use manager::{Acquired, Manager};
pub use podbay_client::*;

/// Sandboxes on any Kubernetes cluster.
pub use podbay_k8s as k8s;

/// Sandboxes on this machine.
#[cfg(target_os = "linux")]
pub use podbay_local as local;

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;
