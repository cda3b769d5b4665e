//! The pod's own address: TCP to the podbayd in a pod, without the API server in between.
//!
//! podbayd listens there only if it has a public key, and serves only whoever shows a token for its very container. The exec
//! that starts podbayd brings both key and identity, so any image will do: the first contact to a pod goes through exec, all
//! others by its address. The connection isn't encrypted.

mod tokens;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use podbay_client::ByteStream;
use podbay_client::tcp::{UpgradeFailure, upgrade};
use podbay_proto::token::PrivateKey;
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) use self::tokens::Token;
use super::exec::ExecChannel;
use super::router::{Router, Way};
use super::sandbox_name::SandboxName;
use super::stock_runtime::{self, Brought, RoutedApi};
use super::{AddressConfig, AddressFailure, Connection};
use crate::bootstrap::Listen;
use crate::cluster::Cluster;
use crate::cluster::clock::Clock;
use crate::error::Result;
use crate::keys::read_keys;
use crate::pod::container::Container;

/// How long a pod's address may take to accept a connection, and podbayd there to check the token.
const LIMIT: Duration = Duration::from_secs(1);

/// How long a client goes through exec after an address didn't answer, before it tries it again.
const BLOCKED: Duration = Duration::from_secs(300);

/// How many pods' addresses have to be silent before it is the network's fault.
const ENOUGH: usize = 3;

/// Reaches pods at their addresses. One for each provider, so that what one sandbox has learned of the network holds for all.
pub(crate) struct PodAddresses {
    clock: Clock,
    only: bool,
    port: u16,
    key_file: PathBuf,
    keys: Mutex<Vec<PrivateKey>>,
    network: Mutex<Network>,
    /// What leads to pods, where they can't be reached themselves.
    router: Option<Arc<Router>>,
    /// The last resort, where any way will do: a tunnel to the router, for those who may not use exec.
    tunnel: Option<Router>,
}

/// What is known of the way to pods.
#[derive(Debug, Default)]
struct Network {
    /// A pod has answered at its address.
    reached: bool,
    /// Pods whose addresses didn't answer, by UID, and when that was. One alone proves nothing: what runs in it decides.
    silent: BTreeMap<String, Instant>,
}

impl Network {
    fn forget_old(&mut self) {
        self.silent.retain(|_, since| since.elapsed() < BLOCKED);
    }
}

impl PodAddresses {
    /// Reads the private key. Nothing if pods are reached through exec.
    ///
    /// # Errors
    /// When the key can't be read.
    pub(crate) fn new(cluster: &Cluster, config: AddressConfig<'_>) -> Result<Option<Arc<Self>>> {
        let Some(key_file) = config.key_file().filter(|_| config.is_used()).map(PathBuf::from) else { return Ok(None) };
        let keys = read_keys(&key_file)?;
        let to_router = |way: Option<Way>| {
            let chosen = way.zip(config.router.as_ref());
            chosen.map(|(way, router)| Router::new(cluster, way, router)).transpose()
        };
        let router = to_router(config.connection.router())?.map(Arc::new);
        let tunnel = to_router(Some(Way::Tunnel).filter(|_| config.connection == Connection::Auto))?;
        Ok(Some(Arc::new(Self {
            clock: cluster.clock.clone(),
            only: config.connection != Connection::Auto,
            port: config.port,
            key_file,
            keys: Mutex::new(keys),
            network: Mutex::default(),
            router,
            tunnel,
        })))
    }

    /// Whether there is no other way than the address.
    pub(crate) fn is_only_way(&self) -> bool {
        self.only
    }

    /// Whether a router leads to pods.
    pub(crate) fn is_through_router(&self) -> bool {
        self.router.is_some()
    }

    /// Whether the address of a container should be tried at all.
    pub(crate) fn is_worth_trying(&self, container: &Container) -> bool {
        let mut network = lock(&self.network);
        network.forget_old();
        self.only || !network.silent.contains_key(&container.uid) && (network.reached || network.silent.len() < ENOUGH)
    }

    /// What podbayd needs to listen, if an exec starts it.
    pub(crate) fn listen(&self, container: &Container) -> Listen {
        let keys: Vec<String> = lock(&self.keys).iter().map(|key| key.public().to_string()).collect();
        Listen { port: self.port, public_keys: keys.join(","), container: container.clone() }
    }

    /// Connects to the podbayd in a pod.
    pub(crate) async fn connect(
        &self,
        container: &Container,
        address: IpAddr,
        token: &str,
    ) -> Result<Box<dyn ByteStream>, AddressFailure> {
        if let Some(router) = &self.router {
            return router.connect(container, address, self.port, token).await;
        }
        let address = SocketAddr::new(address, self.port);
        let connected = connect_and_upgrade(address, token).await.map(|stream| Box::new(stream) as Box<dyn ByteStream>);
        let mut network = lock(&self.network);
        match &connected {
            Ok(_) => *network = Network { reached: true, silent: BTreeMap::new() },
            Err(AddressFailure::Unreachable(..)) => {
                network.forget_old();
                network.silent.insert(container.uid.clone(), Instant::now());
            }
            Err(_) => {}
        }
        connected
    }

    /// Connects to the podbayd of a Sandbox, whose pod a router finds by the Sandbox's name.
    pub(crate) async fn connect_by_name(
        &self,
        sandbox: &SandboxName,
        token: &str,
    ) -> Result<Box<dyn ByteStream>, AddressFailure> {
        match &self.router {
            Some(router) => router.connect_by_name(&sandbox.namespace, &sandbox.name, self.port, token).await,
            None => {
                Err(AddressFailure::Router(sandbox.to_string(), "only a router finds a Sandbox by its name".into()))
            }
        }
    }

    /// Connects through a tunnel to the router, where that is worth trying.
    pub(crate) async fn connect_by_tunnel(
        &self,
        container: &Container,
        address: IpAddr,
        token: &str,
    ) -> Option<Result<Box<dyn ByteStream>, AddressFailure>> {
        Some(self.tunnel.as_ref()?.connect(container, address, self.port, token).await)
    }

    /// Whether the router answers at all.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) async fn greet_router(&self) -> Result<String, String> {
        match &self.router {
            Some(router) => router.greet().await,
            None => Err("no router is configured".into()),
        }
    }

    /// Brings podbayd into a pod by the runtime that runs there, where there is a router that leads to it.
    ///
    /// # Errors
    /// When that runtime can't, or fails.
    pub(crate) async fn bring(&self, exec: &ExecChannel) -> Result<Brought> {
        match &self.router {
            Some(router) => stock_runtime::bring(&RoutedApi::new(router.clone(), exec.clone()), exec.launch()).await,
            None => Ok(Brought::NoRuntime),
        }
    }
}

impl std::fmt::Debug for PodAddresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodAddresses").field("port", &self.port).field("only", &self.only).finish_non_exhaustive()
    }
}

async fn connect_and_upgrade(address: SocketAddr, token: &str) -> Result<TcpStream, AddressFailure> {
    let silent = || format!("no answer in {} s", LIMIT.as_secs());
    let place = address.to_string();
    let mut stream = match timeout(LIMIT, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return Err(AddressFailure::NotListening(place));
        }
        Ok(Err(error)) => return Err(AddressFailure::Unreachable(place, error.to_string())),
        Err(_) => return Err(AddressFailure::Unreachable(place, silent())),
    };
    let unusable = |error: io::Error| AddressFailure::NotPodbayd(place.clone(), error.to_string());
    stream.set_nodelay(true).map_err(unusable)?;
    match timeout(LIMIT, upgrade(&mut stream, token)).await {
        Ok(Ok(())) => Ok(stream),
        Ok(Err(UpgradeFailure::Refused(error))) => Err(AddressFailure::Refused(place, error.message)),
        Ok(Err(UpgradeFailure::Broken(error))) => Err(unusable(error)),
        // The network leads there. A sandbox that stays silent must not keep others from being reached.
        Err(_) => Err(AddressFailure::NotPodbayd(place, silent())),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    pub(super) fn addresses(dir: &tempfile::TempDir, port: u16, seeds: &[u8]) -> PodAddresses {
        let key_file = dir.path().join("key");
        let keys: Vec<String> = seeds.iter().map(|seed| PrivateKey::from_seed([*seed; 32]).secret_text()).collect();
        std::fs::write(&key_file, keys.join("\n")).unwrap();
        let keys = Mutex::new(read_keys(&key_file).unwrap());
        PodAddresses {
            clock: Clock::new(),
            only: false,
            port,
            key_file,
            keys,
            network: Mutex::default(),
            router: None,
            tunnel: None,
        }
    }

    pub(super) fn container() -> Container {
        Container { namespace: "agents".into(), pod: "p".into(), uid: "u".into(), name: "c".into() }
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn clients_connect_to_the_port_that_podbayd_is_told_to_listen_on() {
        let dir = tempfile::tempdir().unwrap();
        let key = PrivateKey::from_seed([1; 32]);
        std::fs::write(dir.path().join("key"), key.secret_text()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = crate::raw::Config {
            connection: Connection::InCluster,
            private_key_file: dir.path().join("key").to_str().map(str::to_owned),
            port: listener.local_addr().unwrap().port(),
            ..crate::raw::Config::default()
        };
        let addresses = PodAddresses::new(&Cluster::without_api("agents"), config.addresses()).unwrap().unwrap();
        let container = container();
        let listen = addresses.listen(&container);
        assert_eq!((listen.port, listen.public_keys), (config.port, key.public().to_string()));
        let accepted = async { listener.accept().await.map(drop) };
        let (connected, accepted) = tokio::join!(addresses.connect(&container, HERE, "token"), accepted);
        assert!(connected.is_err() && accepted.is_ok());
    }

    /// A sandbox may listen in podbayd's place.
    #[tokio::test]
    async fn a_server_that_says_nothing_costs_a_second_and_nobody_else_anything() {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = addresses(&dir, listener.local_addr().unwrap().port(), &[1]);
        let begun = Instant::now();
        let failure = addresses.connect(&container(), HERE, "token").await.err().unwrap();
        assert!(matches!(failure, AddressFailure::NotPodbayd(..)), "{failure}");
        assert!(begun.elapsed() < Duration::from_secs(3));
        assert!(addresses.is_worth_trying(&container()));
        drop(listener);
        let failure = addresses.connect(&container(), HERE, "token").await.err().unwrap();
        assert!(matches!(failure, AddressFailure::NotListening(_)), "{failure}");
        assert!(addresses.is_worth_trying(&container()));
    }

    #[tokio::test]
    async fn where_no_pod_was_ever_reached_addresses_are_not_tried_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere: IpAddr = "255.255.255.255".parse().unwrap();
        let mut addresses = addresses(&dir, 7777, &[1]);
        let failure = addresses.connect(&container(), nowhere, "token").await.err().unwrap();
        assert!(matches!(failure, AddressFailure::Unreachable(..)), "{failure}");
        assert!(!addresses.is_worth_trying(&container()));
        // What runs in one pod must not decide for all.
        let others: Vec<_> = ["v", "w", "x"].map(|uid| Container { uid: uid.into(), ..container() }).into();
        assert!(addresses.is_worth_trying(&others[0]));
        for other in &others[..2] {
            addresses.connect(other, nowhere, "token").await.err().unwrap();
        }
        assert!(!addresses.is_worth_trying(&others[2]), "it is the network's fault");
        addresses.only = true;
        assert!(addresses.is_worth_trying(&container()), "there is no other way");
        addresses = PodAddresses {
            network: Mutex::new(Network { reached: true, ..Network::default() }),
            only: false,
            ..addresses
        };
        addresses.connect(&container(), nowhere, "token").await.err().unwrap();
        assert!(addresses.is_worth_trying(&others[0]), "others can be reached");
    }
}
