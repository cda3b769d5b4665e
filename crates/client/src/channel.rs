//! Ways to reach one podbayd as a byte stream.

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::tcp;

/// A byte stream in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A byte stream that is being opened.
pub type Opening<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send + 'a>>;

/// A credential that is being obtained.
pub type Credential<'a> = Pin<Box<dyn Future<Output = io::Result<Option<String>>> + Send + 'a>>;

/// A way to reach one podbayd. Everything above a channel is the same code.
pub trait Channel: Debug + Send + Sync {
    /// Opens a byte stream, at whose other end is the sandbox's podbayd.
    ///
    /// An error that has an [`Error`](crate::Error) in it is final; after any other it is tried again for a while.
    fn open(&self) -> Opening<'_>;

    /// For how long a broken connection is worth opening again before an operation gives up.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// The token that podbayd wants to see on this channel, if any. Tokens expire, so every
    /// request asks for one: a channel keeps the one it has while that is valid.
    fn credential(&self) -> Credential<'_> {
        Box::pin(async { Ok(None) })
    }
}

/// The unix socket of a podbayd on this machine.
#[cfg(unix)]
#[derive(Debug, Clone)]
pub struct UnixChannel {
    path: std::path::PathBuf,
}

#[cfg(unix)]
impl UnixChannel {
    /// The socket at a path.
    pub fn new(path: impl Into<std::path::PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

#[cfg(unix)]
impl Channel for UnixChannel {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            let stream = tokio::net::UnixStream::connect(&self.path).await.map_err(|error| {
                io::Error::new(error.kind(), format!("the socket {} can't be reached: {error}", self.path.display()))
            })?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }

    /// On one machine nothing gets lost on the way: a socket that stays silent belongs to a sandbox that is gone.
    fn patience(&self) -> Duration {
        Duration::from_secs(3)
    }
}

/// A podbayd that listens on TCP.
#[derive(Clone)]
pub struct TcpChannel {
    address: String,
    token: String,
}

impl TcpChannel {
    /// The address, such as `10.0.0.7:7777`, and a token for the podbayd there.
    pub fn new(address: impl Into<String>, token: impl Into<String>) -> Self {
        Self { address: address.into(), token: token.into() }
    }
}

impl Debug for TcpChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the token: it would end up in logs.
        f.debug_struct("TcpChannel").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Channel for TcpChannel {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            let mut stream = tokio::net::TcpStream::connect(&self.address)
                .await
                .map_err(|error| io::Error::new(error.kind(), format!("{} can't be reached: {error}", self.address)))?;
            stream.set_nodelay(true)?;
            tcp::upgrade(&mut stream, &self.token).await.map_err(|failure| match failure {
                tcp::UpgradeFailure::Refused(error) => io::Error::other(crate::Error::from(error)),
                tcp::UpgradeFailure::Broken(error) => error,
            })?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    }

    fn credential(&self) -> Credential<'_> {
        Box::pin(async { Ok(Some(self.token.clone())) })
    }
}
