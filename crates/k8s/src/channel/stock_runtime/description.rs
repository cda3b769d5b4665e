//! What `podbay describe` says of a sandbox that is reached over the stock runtime's API.

use podbay_client::Sandbox;
use podbay_client::description::Description;

use crate::pod::description::ask_podbayd;

/// Says what carries the connection, and asks podbayd as everywhere.
pub(crate) async fn ask_by_stock_runtime(description: &mut Description, sandbox: &Sandbox, port: u16) {
    let carried = format!(
        "carried by the API of upstream's stock runtime, port {port}, through the router: slower than podbayd's own port, and \
         without authentication: whoever reaches that port can run commands in the sandbox, and so can its own commands, outside of \
         podbayd's protection"
    );
    description.facts.push(("connection", carried));
    ask_podbayd(description, sandbox).await;
}
