//! The WebSocket handshake, over whatever carries the request and becomes the stream.
//!
//! kube's own helper fixes its buffers at 128 KiB; with these a connection costs about 60 KiB of memory.

use std::io::{self, IoSlice};

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http::header::{self, HeaderValue};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Most of what is sent is smaller; larger frames pass through as they are.
const BUFFER: usize = 16 << 10;

/// API servers cut their frames at 32 KiB; anything far above comes from something else.
const LARGEST_MESSAGE: usize = 1 << 20;

/// A request for an upgrade, until it is answered.
pub(crate) struct Handshake {
    key: String,
}

impl Handshake {
    /// Adds the headers of an upgrade to a request.
    ///
    /// # Errors
    /// When they can't be sent.
    pub(crate) fn start(headers: &mut HeaderMap, protocols: &'static str) -> Result<Self, String> {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols));
        Self::start_without_protocol(headers)
    }

    /// The same without naming subprotocols.
    ///
    /// # Errors
    /// When the headers can't be sent.
    pub(crate) fn start_without_protocol(headers: &mut HeaderMap) -> Result<Self, String> {
        let key = generate_key();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        let value = HeaderValue::from_str(&key).map_err(|error| format!("can't send the key: {error}"))?;
        headers.insert(header::SEC_WEBSOCKET_KEY, value);
        Ok(Self { key })
    }

    /// Checks the headers of the answer (101 Switching Protocols), and returns the subprotocol that was agreed on.
    ///
    /// # Errors
    /// When whoever answered doesn't speak WebSocket.
    pub(crate) fn finish<'a>(&self, headers: &'a HeaderMap) -> Result<Option<&'a str>, String> {
        let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        match text(header::SEC_WEBSOCKET_ACCEPT) == Some(derive_accept_key(self.key.as_bytes()).as_str()) {
            true => Ok(text(header::SEC_WEBSOCKET_PROTOCOL)),
            false => Err("the answer isn't WebSocket; check for a proxy in between".into()),
        }
    }
}

/// The WebSocket on a stream whose handshake is done.
pub(crate) async fn over<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> WebSocketStream<S> {
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_message_size(Some(LARGEST_MESSAGE))
        .max_frame_size(Some(LARGEST_MESSAGE));
    WebSocketStream::from_raw_socket(stream, Role::Client, Some(config)).await
}

/// Puts parts into one message, after `before`, with at most `most` bytes of them.
pub(crate) fn message(before: &[u8], parts: &[IoSlice<'_>], most: usize) -> Bytes {
    let length = parts.iter().map(|part| part.len()).sum::<usize>().min(most) + before.len();
    let mut message = BytesMut::with_capacity(length);
    message.put_slice(before);
    for part in parts {
        let room = length - message.len();
        message.put_slice(&part[..part.len().min(room)]);
    }
    message.freeze()
}

/// Why a WebSocket can't be used any more; `what` is at its other end.
pub(crate) fn broken(what: &str) -> impl Fn(tungstenite::Error) -> io::Error {
    move |error| match error {
        tungstenite::Error::Io(error) => error,
        tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
            io::Error::new(io::ErrorKind::BrokenPipe, format!("the connection to {what} was closed"))
        }
        other => io::Error::other(format!("the connection to {what}: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_another_request_is_refused() {
        let mut request = HeaderMap::new();
        let handshake = Handshake::start(&mut request, "one, two").unwrap();
        let key = request[header::SEC_WEBSOCKET_KEY].as_bytes();
        let mut answer = HeaderMap::new();
        assert!(handshake.finish(&answer).is_err());
        answer.insert(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(key).parse().unwrap());
        assert_eq!(handshake.finish(&answer), Ok(None));
        answer.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("two"));
        assert_eq!(handshake.finish(&answer), Ok(Some("two")));
        assert!(Handshake::start(&mut request, "one").unwrap().finish(&answer).is_err());
    }
}
