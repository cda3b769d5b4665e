//! Where podbayd listens on TCP, and whose tokens it accepts.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use podbay_proto::Result;
use podbay_proto::layout::listen_env;
use podbay_proto::token::{Identity, PublicKey};
use rustix::fs::{Mode, OFlags};
use tokio::net::TcpListener;

use crate::stderr_log::log_error;

/// The largest file with public keys.
const LARGEST_FILE: u64 = 4 << 10;

/// Where podbayd listens, and for whom.
#[derive(Debug)]
pub struct Listening {
    /// Where to listen, tried in this order.
    pub addresses: Vec<SocketAddr>,
    /// Whether podbayd fails if it can't listen on all of them. Otherwise one is enough, or none.
    pub required: bool,
    /// Who signs tokens.
    pub keys: Keys,
    /// Who this podbayd is.
    pub identity: Identity,
    /// Whether connections from the pod itself are accepted.
    pub allow_local: bool,
}

/// The public keys of those who may sign tokens.
#[derive(Debug)]
pub enum Keys {
    /// These.
    Fixed(Vec<PublicKey>),
    /// Those in a file, which may change.
    File(PathBuf),
}

impl Keys {
    pub(super) fn read(&self) -> Result<Vec<PublicKey>, String> {
        match self {
            Self::Fixed(keys) => Ok(keys.clone()),
            Self::File(path) => {
                let describe = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
                let mut text = String::new();
                // A pipe in its place would block podbayd, and with it everybody else.
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
                let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| describe(&error))?;
                let file = std::fs::File::from(file);
                if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                    return Err(describe(&"this isn't a regular file"));
                }
                io::Read::read_to_string(&mut io::Read::take(file, LARGEST_FILE), &mut text)
                    .map_err(|error| describe(&error))?;
                PublicKey::parse_all(&text).map_err(|error| describe(&error))
            }
        }
    }
}

/// Listens on these addresses.
///
/// # Errors
/// When one of them can't be had, and all are required. Otherwise that is only logged.
pub(in crate::serve) async fn bind(addresses: Vec<SocketAddr>, required: bool) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    let mut failed = None;
    for address in addresses {
        match TcpListener::bind(address).await {
            Ok(listener) => listeners.push(listener),
            // The first address may cover this one.
            Err(error) if !listeners.is_empty() && error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => {
                failed = Some(io::Error::new(error.kind(), format!("can't listen on {address}: {error}")));
                // Clients would come to whoever has taken the port there. Better they come to nobody.
                if error.kind() == io::ErrorKind::AddrInUse {
                    break;
                }
            }
        }
    }
    match failed {
        Some(error) if required => return Err(error),
        Some(error) => log_error(error),
        None => {}
    }
    Ok(listeners)
}

impl Listening {
    /// Listens on these addresses, with keys and identity from the environment.
    ///
    /// # Errors
    /// When there is no key, or podbayd can't tell which container it is in.
    pub fn from_environment(addresses: Vec<SocketAddr>, required: bool) -> Result<Self, String> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let keys = match (variable(listen_env::PUBLIC_KEYS_FILE), variable(listen_env::PUBLIC_KEYS)) {
            // podbayd changes its directory.
            (Some(path), _) if !path.starts_with('/') => {
                return Err(format!("{} is {path:?}: use an absolute path", listen_env::PUBLIC_KEYS_FILE));
            }
            (Some(path), _) => Keys::File(path.into()),
            (None, Some(text)) => Keys::Fixed(
                PublicKey::parse_all(&text).map_err(|error| format!("{}: {error}", listen_env::PUBLIC_KEYS))?,
            ),
            (None, None) => {
                return Err(format!(
                    "listening on TCP requires a public key: set {} to one made by 'podbay keys'",
                    listen_env::PUBLIC_KEYS
                ));
            }
        };
        // A file that can't be read now may be there later, but whoever starts podbayd should learn of it.
        keys.read()?;
        let needed = |name: &str| {
            variable(name)
                .ok_or_else(|| format!("listening on TCP requires {name}, so that other sandboxes' tokens are refused"))
        };
        let identity = Identity {
            namespace: needed(listen_env::NAMESPACE)?,
            uid: needed(listen_env::POD_UID)?,
            container: needed(listen_env::CONTAINER)?,
            pod: variable(listen_env::POD),
            sandbox: variable(listen_env::SANDBOX),
            sandbox_object: variable(listen_env::SANDBOX_OBJECT),
        };
        let allow_local = variable(listen_env::ALLOW_LOCAL).is_some_and(|value| value == "1");
        Ok(Self { addresses, required, keys, identity, allow_local })
    }

    /// The addresses that a text names: `7777` for all addresses of the pod, or `10.0.0.7:7777`.
    ///
    /// # Errors
    /// When it names none.
    pub fn addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
        if let Ok(port) = text.parse::<u16>() {
            // The first covers both families where the kernel has IPv6; then the second one is taken already.
            return Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]);
        }
        let address = text.parse().map_err(|_| format!("{text:?} is neither a port nor an address and a port"))?;
        Ok(vec![address])
    }
}
