//! Byte streams in pieces: what `podbayd exchange` hands over and takes, for clients that reach podbayd by single commands only.
//!
//! Each stream is a connection in memory to podbayd's own HTTP/2 server, so whoever uses one can do what they can do on
//! podbayd's socket, and no more. Each exchange is a connection to that socket, and its peer is checked like any other.

mod session;
mod waiting;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use podbay_proto::exchange::{
    ExchangeAnswer, ExchangeRequest, ExchangeStatus, LARGEST_INPUT, LARGEST_OUTPUT, LONGEST_WAIT_MS, SESSION_LENGTH,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::UnixStream;

use self::session::Session;
use self::waiting::Waiting;
use super::{Daemon, connection};

/// The byte that an exchange begins with on podbayd's socket. The length of the request follows in four bytes, then the request in
/// JSON, then the client's bytes.
pub const EXCHANGE: u8 = b'X';

/// The longest request, without the client's bytes.
const LONGEST_REQUEST: u32 = 4 << 10;

/// How many streams there are at most. One more takes the place of the one that was used least recently.
const MOST_SESSIONS: usize = 64;

/// How many bytes wait between a stream and podbayd's server, in each direction.
const BETWEEN: usize = 256 << 10;

/// All streams.
#[derive(Default)]
pub struct Exchanges {
    sessions: Mutex<HashMap<String, Arc<Session>>>,
    waiting: Waiting,
}

impl Exchanges {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a stream, or opens it: then `serve` gets its other end.
    fn find(self: &Arc<Self>, request: &ExchangeRequest, serve: impl FnOnce(DuplexStream)) -> Option<Arc<Session>> {
        let mut sessions = self.lock();
        if let Some(session) = sessions.get(&request.session) {
            return Some(session.clone());
        }
        if !request.open {
            return None;
        }
        if sessions.len() >= MOST_SESSIONS {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.last_used()).map(|(name, _)| name.clone());
            if let Some(session) = oldest.and_then(|name| sessions.remove(&name)) {
                session.close();
            }
        }
        let (near, far) = tokio::io::duplex(BETWEEN);
        let (session, reader) = Session::new(near);
        sessions.insert(request.session.clone(), session.clone());
        serve(far);
        let (all, name, kept) = (self.clone(), request.session.clone(), session.clone());
        tokio::spawn(async move {
            kept.keep(reader).await;
            let mut sessions = all.lock();
            if sessions.get(&name).is_some_and(|found| Arc::ptr_eq(found, &kept)) {
                sessions.remove(&name);
            }
        });
        Some(session)
    }

    async fn answer(
        self: &Arc<Self>,
        request: &ExchangeRequest,
        data: &[u8],
        serve: impl FnOnce(DuplexStream),
    ) -> ExchangeAnswer {
        let Some(session) = self.find(request, serve) else { return ExchangeAnswer::only(ExchangeStatus::Gone) };
        let answer = session.exchange(request, data, &self.waiting).await;
        if request.close {
            session.close();
        }
        answer
    }
}

/// Serves one exchange, of which the first byte was read.
///
/// # Errors
/// When the request isn't one, or the connection breaks.
pub async fn serve(daemon: Arc<Daemon>, mut stream: UnixStream) -> io::Result<()> {
    let (request, data) = read(&mut stream).await?;
    let exchanges = daemon.exchanges.clone();
    let serve = |far| drop(tokio::spawn(serve_far(daemon, far)));
    // Whoever has asked may be gone, because its client is; then nobody needs an answer.
    let answer = exchanges.answer(&request, &data, serve);
    let (mut reader, mut writer) = stream.split();
    let mut byte = [0];
    let answer = tokio::select! {
        answer = answer => answer,
        _ = reader.read(&mut byte) => return Ok(()),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    writer.write_all(&line).await?;
    writer.shutdown().await
}

async fn serve_far(daemon: Arc<Daemon>, mut far: DuplexStream) -> io::Result<()> {
    let first = far.read_u8().await?;
    connection::serve(daemon, first, Vec::new(), Box::new(far), None).await
}

async fn read(stream: &mut UnixStream) -> io::Result<(ExchangeRequest, Vec<u8>)> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let length = stream.read_u32().await?;
    if length > LONGEST_REQUEST {
        return Err(bad("the request is too long"));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await?;
    let mut request: ExchangeRequest = serde_json::from_slice(&bytes)?;
    let name = request.session.as_bytes();
    if name.len() != SESSION_LENGTH || !name.iter().all(u8::is_ascii_hexdigit) || request.length > LARGEST_INPUT {
        return Err(bad("not an exchange"));
    }
    request.most = request.most.min(LARGEST_OUTPUT);
    request.wait_ms = request.wait_ms.min(LONGEST_WAIT_MS);
    let mut data = Vec::new();
    // Not all at once: who promises much need not send it.
    stream.take(request.length as u64).read_to_end(&mut data).await?;
    match data.len() == request.length {
        true => Ok((request, data)),
        false => Err(bad("the client's bytes are missing")),
    }
}

#[cfg(test)]
mod tests;
