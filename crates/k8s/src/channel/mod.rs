//! Channels: ways to reach the podbayd in a pod as a byte stream.
//!
//! How the stream is dialled differs: [`exec`] goes through pods/exec, `in_cluster` to the pod's own address. What a
//! failure to dial means to the session above is the same for all, and is decided here.

mod address_failure;
pub(crate) mod by_name;
mod connection;
pub mod exec;
pub mod exec_stream;
pub(crate) mod in_cluster;
pub mod kube_upgrade;
pub(crate) mod pod;
pub(crate) mod router;
pub(crate) mod sandbox_name;
pub(crate) mod stock_runtime;
mod websocket;
mod websocket_bytes;

use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use podbay_client::{ByteStream, Channel, Opening};

pub(crate) use self::address_failure::AddressFailure;
pub(crate) use self::connection::AddressConfig;
pub use self::connection::Connection;
use crate::error::{Error, Result};

/// Dials a byte stream to one podbayd.
pub(crate) trait Dial: Debug + Send + Sync {
    /// The stream, at whose other end podbayd has greeted.
    type Stream: ByteStream + 'static;

    /// Opens a stream.
    fn dial(&self) -> impl Future<Output = Result<Self::Stream>> + Send;
}

/// A channel that dials in some way.
#[derive(Debug, Clone)]
pub(crate) struct DialedChannel<D> {
    dial: D,
    /// Whether it was ever opened.
    opened: Arc<AtomicBool>,
}

impl<D: Dial> DialedChannel<D> {
    pub(crate) fn new(dial: D) -> Self {
        Self { dial, opened: Arc::default() }
    }
}

impl<D: Dial> Channel for DialedChannel<D> {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            match self.dial.dial().await {
                Ok(stream) => {
                    self.opened.store(true, Ordering::Relaxed);
                    Ok(Box::new(stream) as Box<dyn ByteStream>)
                }
                // An API server that was just restarted doesn't know its roles yet, and refuses what it allowed before.
                Err(error @ Error::PermissionDenied { .. }) if self.opened.load(Ordering::Relaxed) => {
                    Err(io::Error::other(error))
                }
                // A client's error is final: the session doesn't retry.
                Err(error) if error.is_final() => Err(io::Error::other(podbay_client::Error::from(error))),
                Err(error) => Err(io::Error::other(error)),
            }
        })
    }
}
