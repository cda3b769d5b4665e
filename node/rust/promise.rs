//! Promises of work that can be cancelled.

use napi::Env;
use napi::bindgen_prelude::{PromiseRaw, ToNapiValue};
use napi_derive::napi;
use tokio::sync::watch;

use crate::failure::Failure;

/// Ends operations that were started with it: the work in the sandbox, not only the wait for it.
#[napi]
pub struct Cancellation {
    cancelled: watch::Sender<bool>,
}

#[napi]
impl Cancellation {
    /// Creates one that isn't cancelled.
    #[napi(constructor)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { cancelled: watch::Sender::new(false) }
    }

    /// Ends the operations.
    #[napi]
    pub fn cancel(&self) {
        self.cancelled.send_replace(true);
    }
}

/// A promise of an operation's result. A cancelled operation is dropped, which ends it in the sandbox.
pub fn promise<'env, T>(
    env: &'env Env,
    cancellation: Option<&Cancellation>,
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> napi::Result<PromiseRaw<'env, T>>
where
    T: ToNapiValue + Send + 'static,
{
    let cancelled = cancellation.map(|cancellation| cancellation.cancelled.subscribe());
    env.spawn_future(async move {
        let Some(mut cancelled) = cancelled else { return Ok(work.await?) };
        let stop = async {
            // An object that was dropped can't be cancelled any more.
            if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = stop => Err(Failure::Cancelled.into()),
            result = work => Ok(result?),
        }
    })
}
