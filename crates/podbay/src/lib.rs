//! Sandboxes for AI agents, on this machine and on any Kubernetes cluster.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sandbox = podbay::local::Local::new()?.get_or_create(&Default::default()).await?;
//! let output = sandbox.run("python3 -c 'print(2 + 2)'").await?;
//! assert_eq!(output.text(), "4\n");
//! sandbox.delete().await?;
//! # Ok(()) }
//! ```

pub use podbay_client::*;

/// Sandboxes on this machine.
#[cfg(target_os = "linux")]
pub use podbay_local as local;
