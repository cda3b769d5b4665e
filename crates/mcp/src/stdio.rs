//! The server over standard input and output: one session, as long as the client keeps them open.

use std::sync::Arc;

use podbay::{Error, Podbay};
use rmcp::service::serve_server;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::stdio_pipes;

use crate::options::Options;
use crate::server::Server;
use crate::session::Session;

/// The longest message. Longer ones are dropped.
const LONGEST: usize = 16 << 20;

/// Serves one session over standard input and output, until the client closes them or `end` is ready. Its sandbox is deleted
/// then.
///
/// # Errors
/// When the sandbox can't be deleted, or the client doesn't speak the protocol.
pub async fn serve(podbay: &Podbay, options: Options, end: impl Future<Output = ()>) -> Result<(), Error> {
    let session = Arc::new(Session::new(podbay, &Arc::new(options), None));
    let (input, output) = stdio_pipes();
    let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(LONGEST);
    let conversation = async {
        let service = serve_server(Server::connected(session.clone()), transport).await;
        match service {
            Ok(service) => service.waiting().await.map(drop).map_err(|error| Error::Provider(Box::new(error))),
            // A client that closes its end before it has said anything wanted nothing.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(Error::Provider(Box::new(error))),
        }
    };
    let ended = tokio::select! {
        ended = conversation => ended,
        () = end => Ok(()),
    };
    session.close().await.and(ended)
}
