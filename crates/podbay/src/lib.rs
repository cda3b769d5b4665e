//! Sandboxes for AI agents, on this machine and on any Kubernetes cluster.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use podbay::Podbay;
//!
//! let podbay = Podbay::local()?;
//! let sandbox = podbay.create().await?;
//! let output = sandbox.run("python3 -c 'print(2 + 2)'").await?;
//! assert_eq!(output.text(), "4\n");
//! sandbox.destroy().await?;
//! # Ok(()) }
//! ```

pub mod audit;
mod builder;
pub mod config;
mod errors;
mod guard;
mod lazy;
mod podbay;
pub mod policy;
mod shared_exec;
pub mod thread;

pub use builder::Builder;
pub use errors::ErrorName;
pub use lazy::LazySandbox;
pub use podbay::Podbay;
pub use podbay_client::*;
pub use shared_exec::SharedExec;

/// Sandboxes on any Kubernetes cluster.
pub use podbay_k8s as k8s;

/// Sandboxes on this machine.
#[cfg(target_os = "linux")]
pub use podbay_local as local;

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;
