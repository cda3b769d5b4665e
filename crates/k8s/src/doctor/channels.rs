//! Tries every connection to podbayd that the settings name, and holds it for a while if that is asked for.

use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use podbay_client::{ByteStream, Channel};

use super::address::{RunningPod, fix};
use super::report::{CheckState, Finding};
use crate::agent_sandbox::Config;
use crate::channel::exec::ExecChannel;
use crate::channel::in_cluster::PodAddresses;
use crate::channel::router::{Router, RouterConfig, Way};
use crate::channel::sandbox_name::SandboxName;
use crate::channel::stock_runtime::StockChannel;
use crate::channel::{AddressConfig, AddressFailure, Connection};
use crate::cluster::Cluster;
use crate::error::{Error, Result};

/// What to do about a connection that something cut.
const CUT: &str = "raise the WebSocket timeout of the load balancer, proxy or Gateway in between. Nothing is lost until \
                   then: commands keep running, and Podbay reconnects when needed";

/// A sandbox that is running, and how it is reached.
pub(super) struct Channels<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) config: &'a Config,
    pub(super) location: SandboxLocation,
    /// How long each connection is held.
    pub(super) hold: Option<Duration>,
}

/// Where a sandbox is.
pub(super) enum SandboxLocation {
    /// In a pod that the cluster has told of.
    Pod(RunningPod),
    /// Wherever the router finds it.
    Named(SandboxName),
}

/// The connections that the settings name: the chosen one, and others that could be chosen.
fn configured(config: &Config) -> Vec<Connection> {
    let addresses = config.addresses();
    let chosen = addresses.connection;
    let set = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    let has_key = set(&config.private_key_file);
    let by_exec = matches!(chosen, Connection::Auto | Connection::Exec);
    let at_address = chosen == Connection::InCluster || chosen == Connection::Auto && has_key;
    [
        (Connection::Exec, by_exec),
        (Connection::InCluster, at_address),
        (Connection::Direct, has_key && set(&config.router_url)),
        (Connection::Gateway, has_key && set(&config.gateway_name)),
        (Connection::Tunnel, chosen == Connection::Tunnel),
    ]
    .into_iter()
    .filter_map(|(connection, used)| used.then_some(connection))
    .collect()
}

impl Channels<'_> {
    /// One finding for each connection, and one more for each that was held.
    pub(super) async fn findings(&self) -> Vec<Finding> {
        if let (SandboxLocation::Pod(pod), Ok(Some((way, router)))) = (&self.location, self.config.stock_runtime()) {
            return self.by_stock_runtime(pod, way, &router).await;
        }
        let connections = match &self.location {
            SandboxLocation::Pod(_) => configured(self.config),
            SandboxLocation::Named(_) => vec![Connection::Direct],
        };
        // Held at the same time: a minute each would add up.
        let found = join_all(connections.into_iter().map(|connection| self.examine(connection))).await;
        found.into_iter().flatten().collect()
    }

    /// podbayd over the stock runtime's API, which is the only connection then.
    async fn by_stock_runtime(&self, pod: &RunningPod, way: Way, router: &RouterConfig<'_>) -> Vec<Finding> {
        let what = format!("connection {}, over the stock runtime", way.as_str());
        let port = self.config.runtime_port;
        let failed = |why: String| {
            let fix = "check that the pod runs upstream's Python runtime on agent_sandbox.runtime_port, and that the network \
                       policies let the router reach that port";
            vec![Finding::new("channel", what.clone(), CheckState::Failed, why).fix(fix)]
        };
        let router = match Router::new(self.cluster, way, router) {
            Ok(router) => Arc::new(router),
            Err(error) => return failed(error.to_string()),
        };
        let workdir = self.config.workdir.clone().unwrap_or_default();
        let exec = ExecChannel::new(self.cluster.client.clone(), pod.container.clone(), workdir);
        let channel = StockChannel::new(&router, exec);
        let begun = Instant::now();
        if let Err(error) = channel.open().await {
            return failed(error.to_string());
        }
        let detail =
            format!("podbayd answers after {} ms, over that runtime's API on port {port}", begun.elapsed().as_millis());
        let open = format!(
            "has no authentication: whoever reaches port {port} can run commands in the sandbox, and the sandbox's own \
             commands can do so outside of podbayd's protection"
        );
        let fix = "admit nobody but the router to that port, and give the router a token; or let the router reach podbayd's own \
                   port and remove agent_sandbox.runtime (docs/router.md)";
        let mut findings = vec![
            Finding::new("channel", what.clone(), CheckState::Ok, detail),
            Finding::new("channel", "the stock runtime's API", CheckState::Warning, open).fix(fix),
        ];
        if let Some(time) = self.hold {
            let opened = channel.open().await.map_err(|error| (error.to_string(), CUT.to_owned()));
            findings.push(held(&what, opened, time).await);
        }
        findings
    }

    async fn examine(&self, connection: Connection) -> Vec<Finding> {
        let what = format!("connection {}", connection.as_str());
        let chosen = self.config.addresses().connection;
        // With `auto` there is more than one way, and the trial has shown that one of them works.
        let broken = if connection == chosen { CheckState::Failed } else { CheckState::Warning };
        let addresses = match self.addresses(connection) {
            Ok(addresses) => addresses,
            Err(error) => return vec![Finding::new("channel", what, broken, error.to_string())],
        };
        let begun = Instant::now();
        if let Err((why, fix)) = self.open(addresses.as_ref()).await {
            return vec![Finding::new("channel", what, broken, why).fix(fix)];
        }
        let mut detail = format!("podbayd answers after {} ms", begun.elapsed().as_millis());
        if let Some(addresses) = &addresses {
            match self.open_as_stranger(addresses).await {
                Ok(()) => detail.push_str(", and rejects tokens signed by other keys"),
                Err(finding) => return vec![*finding],
            }
        }
        let mut findings = vec![Finding::new("channel", what.clone(), CheckState::Ok, detail)];
        if let Some(time) = self.hold {
            findings.push(held(&what, self.open(addresses.as_ref()).await, time).await);
        }
        findings
    }

    /// The way to pods by one connection; none for exec.
    fn addresses(&self, connection: Connection) -> Result<Option<Arc<PodAddresses>>> {
        let config = AddressConfig { connection, ..self.config.addresses() };
        PodAddresses::new(self.cluster, config)
    }

    /// Opens a stream, or says why that failed and what to do.
    async fn open(&self, addresses: Option<&Arc<PodAddresses>>) -> Result<Box<dyn ByteStream>, (String, String)> {
        let said = |failure: AddressFailure| {
            let fix = fix(&failure).to_owned();
            (failure.to_string(), fix)
        };
        match (&self.location, addresses) {
            (SandboxLocation::Named(sandbox), Some(addresses)) => {
                addresses.connect_by_name(sandbox, &addresses.sign_without_pod(sandbox)).await.map_err(said)
            }
            (SandboxLocation::Pod(RunningPod { container, ip: Some(ip) }), Some(addresses)) => {
                addresses.connect(container, *ip, &addresses.sign(container, "")).await.map_err(said)
            }
            (SandboxLocation::Pod(RunningPod { container, .. }), None) => {
                let workdir = self.config.workdir.clone().unwrap_or_default();
                let exec = ExecChannel::new(self.cluster.client.clone(), container.clone(), workdir);
                let failed = |error: Error| (error.to_string(), "grant create and get on pods/exec".to_owned());
                exec.dial().await.map(|stream| Box::new(stream) as Box<dyn ByteStream>).map_err(failed)
            }
            _ => Err(("the pod has no address".to_owned(), "try again once the pod is running".to_owned())),
        }
    }

    /// Shows a token that nobody should accept.
    async fn open_as_stranger(&self, addresses: &PodAddresses) -> Result<(), Box<Finding>> {
        let opened = match &self.location {
            SandboxLocation::Named(sandbox) => {
                addresses.connect_by_name(sandbox, &addresses.sign_without_pod_as_stranger(sandbox)).await
            }
            SandboxLocation::Pod(RunningPod { container, ip: Some(ip) }) => {
                addresses.connect(container, *ip, &addresses.sign_as_stranger(container)).await
            }
            SandboxLocation::Pod(_) => return Ok(()),
        };
        let finding =
            |state, detail: String| Box::new(Finding::new("channel", "tokens signed by other keys", state, detail));
        match opened {
            // The Python router says no more than that.
            Err(AddressFailure::Refused(..) | AddressFailure::Forbidden(..)) => Ok(()),
            Err(failure) => Err(finding(CheckState::Warning, format!("weren't rejected as expected: {failure}"))),
            Ok(_) => {
                let detail = "whatever answers there accepts tokens signed by any key".to_owned();
                let mut found = finding(CheckState::Failed, detail);
                found.fix = Some("don't use this image: something in it answers in podbayd's place".into());
                Err(found)
            }
        }
    }
}

/// Holds a stream, if it could be opened.
async fn held(what: &str, opened: Result<Box<dyn ByteStream>, (String, String)>, time: Duration) -> Finding {
    let finding = |state, detail: String| Finding::new("hold", format!("{what}, held"), state, detail);
    let stream = match opened {
        Ok(stream) => stream,
        Err((why, fix)) => return finding(CheckState::Warning, why).fix(fix),
    };
    let begun = Instant::now();
    match hold(stream, time).await {
        None => finding(CheckState::Ok, format!("still open after {} s", time.as_secs())),
        Some(why) => {
            let after = begun.elapsed().as_secs_f32();
            finding(CheckState::Warning, format!("was cut after {after:.1} s of {} s: {why}", time.as_secs())).fix(CUT)
        }
    }
}

/// Keeps a connection open as a session does: idle, with a PING every 20 seconds. Returns what cut it, if anything did.
async fn hold(stream: Box<dyn ByteStream>, time: Duration) -> Option<String> {
    let opened = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(40))
        .keep_alive_while_idle(true)
        .handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
        .await;
    let (_sender, connection) = match opened {
        Ok(opened) => opened,
        Err(error) => return Some(whole(&error)),
    };
    match tokio::time::timeout(time, connection).await {
        Err(_) => None,
        Ok(Ok(())) => Some("the other end closed it without giving a reason".to_owned()),
        Ok(Err(error)) => Some(whole(&error)),
    }
}

/// An error with its causes: the last one says what happened.
fn whole(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[test]
    fn what_the_settings_name_is_tried() {
        let key = Some("key".to_owned());
        let plain = Config::default();
        assert_eq!(configured(&plain), [Connection::Exec]);
        let keyed = Config { private_key_file: key, ..plain.clone() };
        assert_eq!(configured(&keyed), [Connection::Exec, Connection::InCluster]);
        // A URL that is named is used, so neither exec nor the pod's address is.
        let routed = Config { router_url: Some("http://r".into()), gateway_name: Some("g".into()), ..keyed.clone() };
        assert_eq!(configured(&routed), [Connection::Direct, Connection::Gateway]);
        let tunnel = Config { connection: Connection::Tunnel, ..routed };
        assert_eq!(configured(&tunnel), [Connection::Direct, Connection::Gateway, Connection::Tunnel]);
        // Without a key no router leads anywhere.
        let keyless = Config { router_url: Some("http://r".into()), ..plain };
        assert_eq!(configured(&keyless), [Connection::Exec]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cuts_a_connection_is_told() {
        let (near, mut far) = tokio::io::duplex(64 << 10);
        let server = tokio::spawn(async move {
            let mut seen = vec![0; 24];
            far.read_exact(&mut seen).await.unwrap();
            tokio::time::sleep(Duration::from_secs(31)).await;
            seen
        });
        let begun = tokio::time::Instant::now();
        let why = hold(Box::new(near), Duration::from_secs(60)).await.unwrap();
        assert!(!why.is_empty() && begun.elapsed() < Duration::from_secs(60), "{why} after {:?}", begun.elapsed());
        assert!(server.await.unwrap().starts_with(b"PRI * HTTP/2.0"));
        // Nobody cuts this one.
        let (near, _far) = tokio::io::duplex(64 << 10);
        assert_eq!(hold(Box::new(near), Duration::from_secs(10)).await, None);
    }
}
