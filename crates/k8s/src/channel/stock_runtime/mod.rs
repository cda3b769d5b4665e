//! podbayd over the API of upstream's stock runtime, through the router: for networks in which the router can reach only that
//! runtime's port.
//!
//! That API uploads files and runs single commands. [`bring`] uses it to install podbayd in the pod, and [`exchange`] to carry
//! podbayd's byte stream, a piece with each command. Everything above the stream is as on every other channel.
//!
//! The API has no authentication: nothing proves that the sandbox's own pod answers.

mod api;
mod bring;
mod description;
mod exchange;
mod routed_api;
#[cfg(all(test, target_os = "linux"))]
mod tests;
mod windows;

use std::sync::Arc;

use podbay_client::{ByteStream, Channel, Opening};
use podbay_proto::exchange::ExchangeOpened;

pub(crate) use self::bring::{Brought, bring};
use self::bring::{StartFailure, start};
pub(crate) use self::description::ask_by_stock_runtime;
use self::exchange::Exchange;
pub(crate) use self::routed_api::RoutedApi;
use self::routed_api::Runtime;
use super::exec::ExecChannel;
use super::router::Router;
use super::{Dial, DialedChannel};
use crate::bootstrap::LaunchOptions;
use crate::error::{Error, Result};

/// The port of upstream's Python runtime, which upstream's SDKs and routers expect.
pub(crate) const RUNTIME_PORT: u16 = 8888;

/// Reaches the podbayd in a pod over the stock runtime's API, and puts it there if it isn't.
#[derive(Debug, Clone)]
pub(crate) struct StockChannel(DialedChannel<StockDial>);

#[derive(Debug, Clone)]
struct StockDial {
    api: Arc<RoutedApi>,
    launch: LaunchOptions,
}

impl StockChannel {
    /// The channel to the container that `exec` leads to; nothing goes through exec.
    pub(crate) fn new(router: &Arc<Router>, exec: ExecChannel) -> Self {
        let launch = exec.launch().clone();
        let api = Arc::new(RoutedApi::new(router.clone(), exec));
        Self(DialedChannel::new(StockDial { api, launch }))
    }
}

impl Channel for StockChannel {
    fn open(&self) -> Opening<'_> {
        self.0.open()
    }
}

impl Dial for StockDial {
    type Stream = Box<dyn ByteStream>;

    async fn dial(&self) -> Result<Box<dyn ByteStream>> {
        self.api.check().await?;
        let session = exchange::random_session();
        let launch = LaunchOptions { exchange: Some(session.clone()), ..self.launch.clone() };
        let printed = match start(&*self.api, &launch).await {
            Ok(printed) => printed,
            Err(StartFailure::Failed(error)) => return Err(error),
            Err(StartFailure::Api(failure)) => return Err(self.explain(&failure.to_string()).await),
        };
        let opened = opened(&printed).ok_or_else(|| {
            Error::Bootstrap("podbayd was started by the pod's runtime, but doesn't say where it is".into())
        })?;
        Ok(Box::new(Exchange::new(self.api.clone(), opened, session).connect()))
    }
}

impl StockDial {
    async fn explain(&self, failure: &str) -> Error {
        let place = self.api.place();
        let hint = match self.api.runtime().await {
            Runtime::Sandboxd => "the pod runs sandboxd, which can't do this",
            Runtime::Python | Runtime::Unknown => {
                "with agent_sandbox.runtime = \"stock\" the pod has to run upstream's Python runtime on that port \
                 (agent_sandbox.runtime_port), and the network has to let the router reach it"
            }
        };
        Error::RouterUnreachable(format!("{place}: {failure}; {hint}"))
    }
}

/// What podbayd says of itself. The pod may say anything.
fn opened(printed: &str) -> Option<ExchangeOpened> {
    let opened: ExchangeOpened = serde_json::from_str(printed.lines().next()?).ok()?;
    let fine = |path: &str| path.starts_with('/') && path.len() < 4096 && !path.contains('\0');
    Some(opened).filter(|opened| fine(&opened.program) && fine(&opened.state))
}
