//! An upgraded connection to the API server.
//!
//! kube's own helper fixes its buffers at 128 KiB; with these a connection costs about 60 KiB of memory.

use http::header::{self, HeaderValue};
use http_body_util::{BodyExt, Limited};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::core::Status;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::error::{Error, Result};

/// Most of what is sent is smaller; larger frames pass through as they are.
const BUFFER: usize = 16 << 10;

/// The server cuts its frames at 32 KiB; what is far above comes from something else.
const LARGEST_MESSAGE: usize = 1 << 20;

/// The most bytes of an error's text.
const LARGEST_ERROR: usize = 64 << 10;

/// The subprotocols of streams into containers, the better one first. See
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go>.
const PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";

/// A WebSocket to the API server.
pub(crate) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// What the two sides agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subprotocol {
    /// Without a way to end one direction.
    V4,
    /// With one.
    V5,
}

/// Sends a request that asks for an upgrade, and gives the WebSocket.
///
/// # Errors
/// What the API server answered instead.
pub(crate) async fn upgrade(
    client: &kube::Client,
    what: &'static str,
    request: http::Request<Vec<u8>>,
) -> Result<(Socket, Subprotocol)> {
    let refused = |reason: String| Error::Upgrade { what, reason };
    let key = generate_key();
    let (mut parts, body) = request.into_parts();
    let headers = &mut parts.headers;
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOLS));
    headers.insert(
        header::SEC_WEBSOCKET_KEY,
        HeaderValue::from_str(&key).map_err(|error| refused(format!("the key can't be sent: {error}")))?,
    );
    let response = client.send(http::Request::from_parts(parts, Body::from(body))).await.map_err(Error::api(what))?;
    if response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
        return Err(match status_of(response).await {
            Ok(status) => Error::api(what)(kube::Error::Api(Box::new(status))),
            Err(reason) => refused(reason),
        });
    }
    let subprotocol = agreed(response.headers(), &key).map_err(refused)?;
    let upgraded = hyper::upgrade::on(response).await.map_err(|error| refused(error.to_string()))?;
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_message_size(Some(LARGEST_MESSAGE))
        .max_frame_size(Some(LARGEST_MESSAGE));
    Ok((WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(config)).await, subprotocol))
}

/// What the answer to a request for an upgrade says.
fn agreed(headers: &http::HeaderMap, key: &str) -> Result<Subprotocol, String> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if text(header::SEC_WEBSOCKET_ACCEPT) != Some(derive_accept_key(key.as_bytes()).as_str()) {
        return Err("whoever answered isn't speaking WebSocket; is there a proxy in between?".into());
    }
    match text(header::SEC_WEBSOCKET_PROTOCOL) {
        Some("v5.channel.k8s.io") => Ok(Subprotocol::V5),
        Some("v4.channel.k8s.io") => Ok(Subprotocol::V4),
        other => Err(format!("the subprotocol {other:?} isn't one of {PROTOCOLS}")),
    }
}

/// The API server's reason, or what else was answered: a proxy in between has no such reasons, and the API server itself
/// gives none (403, no body) when it knows none of the subprotocols.
async fn status_of(response: http::Response<Body>) -> Result<Status, String> {
    let code = response.status();
    let bytes = match Limited::new(response.into_body(), LARGEST_ERROR).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Err(format!("the answer {code} broke off: {error}")),
    };
    serde_json::from_slice(&bytes).map_err(|_| match String::from_utf8_lossy(&bytes).trim() {
        "" => format!("the answer was {code} without a reason; this client knows {PROTOCOLS}"),
        text => format!("the answer was {code}: {}", text.chars().take(1000).collect::<String>()),
    })
}
