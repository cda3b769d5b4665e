//! Plain HTTP requests to a port of a pod, through the router: for the runtime there that isn't podbayd.

use std::net::IpAddr;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::Router;
use crate::pod::container::Container;

/// A connection to the router that carries one request after another.
pub(crate) struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    prefix: String,
}

impl HttpConnection {
    /// Whether another request can be sent.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed() && self.sender.is_ready()
    }
}

impl Router {
    /// Connects to the router.
    pub(crate) async fn connect_http(&self) -> Result<HttpConnection, String> {
        let limit = self.destination.limit();
        let work = async {
            let (stream, host, prefix) = self.destination.open(&self.cluster.client, &self.tls).await?;
            let (sender, connection) =
                http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    // Whoever has a request under way learns of it there.
                    tracing::debug!(%error, "a connection to the router ended");
                }
            });
            Ok(HttpConnection { sender, host, prefix })
        };
        timeout(limit, work).await.unwrap_or_else(|_| Err(format!("no connection in {} s", limit.as_secs())))
    }

    /// Sends a request to a port of a pod. No token goes with it: whoever answers there isn't podbayd.
    pub(crate) async fn send_http(
        &self,
        connection: &mut HttpConnection,
        container: &Container,
        ip: IpAddr,
        port: u16,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, String> {
        let path = format!("{}{}", connection.prefix, request.uri().path());
        *request.uri_mut() = path.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
        request.headers_mut().extend(self.route_headers(container, ip, port)?);
        let host = connection.host.parse().map_err(|error: header::InvalidHeaderValue| error.to_string())?;
        request.headers_mut().insert(header::HOST, host);
        connection.sender.send_request(request).await.map_err(|error| error.to_string())
    }

    /// The router, for messages.
    pub(crate) fn place(&self) -> String {
        self.destination.to_string()
    }
}
