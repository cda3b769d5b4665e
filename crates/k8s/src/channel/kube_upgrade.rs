//! Streams into containers: WebSockets through the API server.

use http_body_util::{BodyExt, Limited};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::core::Status;
use tokio_tungstenite::WebSocketStream;

use super::websocket::{self, Handshake};
use crate::error::{Error, Result};

/// The most bytes of an error's text.
const LARGEST_ERROR: usize = 64 << 10;

/// The subprotocols of streams into containers, the better one first. See
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go>.
const PROTOCOLS: &str = "v5.channel.k8s.io, v4.channel.k8s.io";

/// A WebSocket to the API server.
pub(crate) type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The version of the stream protocol that both sides agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subprotocol {
    /// Can't end one direction alone.
    V4,
    /// Can end one direction alone.
    V5,
}

/// Sends a request that asks the API server for an upgrade, and returns the WebSocket.
///
/// # Errors
/// What the API server answered instead.
pub(crate) async fn upgrade(
    client: &kube::Client,
    what: &'static str,
    request: http::Request<Vec<u8>>,
) -> Result<(Socket, Subprotocol)> {
    let refused = |reason: String| Error::Upgrade { what, reason };
    let (mut parts, body) = request.into_parts();
    let handshake = Handshake::start(&mut parts.headers, PROTOCOLS).map_err(refused)?;
    let response = client.send(http::Request::from_parts(parts, Body::from(body))).await.map_err(Error::api(what))?;
    if response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
        return Err(match status_of(response).await {
            Ok(status) => Error::api(what)(kube::Error::Api(Box::new(status))),
            Err(reason) => refused(reason),
        });
    }
    let subprotocol = match handshake.finish(response.headers()).map_err(refused)? {
        Some("v5.channel.k8s.io") => Subprotocol::V5,
        Some("v4.channel.k8s.io") => Subprotocol::V4,
        other => return Err(refused(format!("the subprotocol {other:?} isn't one of {PROTOCOLS}"))),
    };
    let upgraded = hyper::upgrade::on(response).await.map_err(|error| refused(error.to_string()))?;
    Ok((websocket::over(TokioIo::new(upgraded)).await, subprotocol))
}

/// The API server's reason, or whatever else was answered: a proxy in between has no such reasons, and the API server gives
/// none (403, no body) when it knows none of the subprotocols.
async fn status_of(response: http::Response<Body>) -> Result<Status, String> {
    let code = response.status();
    let bytes = match Limited::new(response.into_body(), LARGEST_ERROR).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Err(format!("the answer {code} was cut off: {error}")),
    };
    serde_json::from_slice(&bytes).map_err(|_| match String::from_utf8_lossy(&bytes).trim() {
        "" => format!("the answer was {code} without a reason; this client knows {PROTOCOLS}"),
        text => format!("the answer was {code}: {}", text.chars().take(1000).collect::<String>()),
    })
}
