//! How long each step takes: printed, not judged.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// No step takes so long, a first compile of everything aside: do that by `cargo xtask cluster up` before.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs a step, says how long it took, and names it when it fails.
pub(crate) async fn step<T>(name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let start = Instant::now();
    let result = tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| bail!("not over after {PATIENCE:?}"));
    println!("{:7.2} s  {name}", start.elapsed().as_secs_f64());
    result.with_context(|| format!("step failed: {name}"))
}

/// Says how long a part of a step took.
pub(crate) fn part(name: &str, start: Instant) {
    println!("           {:7.3} s  {name}", start.elapsed().as_secs_f64());
}
