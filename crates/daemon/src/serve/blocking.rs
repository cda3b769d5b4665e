//! Work that blocks, on a thread of its own.

use podbay_proto::{Error, ErrorCode, Result};

/// Runs `work` on a thread of the runtime's pool.
///
/// # Errors
/// `internal`, when it panicked.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Error::new(ErrorCode::Internal, "podbayd failed during an operation; please report this bug"))
}
