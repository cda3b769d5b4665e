//! How long each step takes: printed, not judged.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// No step takes so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a first compile of everything may take on a slow machine.
const PATIENCE_FOR_COMPILERS: Duration = Duration::from_secs(3600);

/// Runs a step, says how long it took, and names it when it fails.
pub(crate) async fn step<T>(name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    within(PATIENCE, name, work).await
}

/// Like [`step`], for the one that may have to compile Kubernetes first.
pub(crate) async fn first_step<T>(name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    within(PATIENCE_FOR_COMPILERS, name, work).await
}

async fn within<T>(patience: Duration, name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let start = Instant::now();
    let result = tokio::time::timeout(patience, work).await.unwrap_or_else(|_| bail!("not over after {patience:?}"));
    println!("{:7.2} s  {name}", start.elapsed().as_secs_f64());
    result.with_context(|| format!("step failed: {name}"))
}

/// Says how long a part of a step took.
pub(crate) fn part(name: &str, start: Instant) {
    println!("           {:7.3} s  {name}", start.elapsed().as_secs_f64());
}
