//! The settings: which way leads to podbayd, and what that needs.

use podbay_proto::session::PORT;
use podbay_proto::token::{PrivateKey, PublicKey};
use serde::{Deserialize, Serialize};

use super::router::{RouterConfig, Way};
use crate::error::{Error, Result};
use crate::keys::read_keys;

/// How the podbayd in a pod is reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connection {
    /// At the pod's address if a private key is configured and the address can be reached, else through exec.
    #[default]
    Auto,
    /// Through pods/exec.
    Exec,
    /// At the pod's address. Only what starts podbayd goes through exec.
    InCluster,
    /// Through the router at a URL; agent-sandbox mode only.
    Direct,
    /// Through the router behind a Gateway; agent-sandbox mode only.
    Gateway,
    /// Through the router, with a port-forward by the API server; agent-sandbox mode only.
    Tunnel,
}

impl Connection {
    /// Whether it goes through upstream's router.
    pub fn is_through_router(self) -> bool {
        self.router().is_some()
    }

    /// The way to the router, where it leads through one.
    pub(crate) fn router(self) -> Option<Way> {
        match self {
            Self::Auto | Self::Exec | Self::InCluster => None,
            Self::Direct => Some(Way::Direct),
            Self::Gateway => Some(Way::Gateway),
            Self::Tunnel => Some(Way::Tunnel),
        }
    }

    /// Its name in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Exec => "exec",
            Self::InCluster => "in-cluster",
            Self::Direct => "direct",
            Self::Gateway => "gateway",
            Self::Tunnel => "tunnel",
        }
    }
}

/// The settings of the pod's address, which both modes have.
#[derive(Debug, Clone)]
pub(crate) struct AddressConfig<'a> {
    pub(crate) connection: Connection,
    pub(crate) private_key_file: Option<&'a str>,
    pub(crate) port: u16,
    /// How the router is reached, in a mode that has one.
    pub(crate) router: Option<RouterConfig<'a>>,
}

impl AddressConfig<'_> {
    /// Whether pods' addresses are used.
    pub(crate) fn is_used(&self) -> bool {
        match self.connection {
            Connection::Exec => false,
            Connection::InCluster | Connection::Direct | Connection::Gateway | Connection::Tunnel => true,
            Connection::Auto => self.key_file().is_some(),
        }
    }

    /// An empty text is as good as none: it lifts what a weaker source says.
    pub(super) fn key_file(&self) -> Option<&str> {
        self.private_key_file.filter(|path| !path.is_empty())
    }

    /// The public keys of the private keys, if addresses are used.
    ///
    /// # Errors
    /// When the file can't be read.
    pub(crate) fn public_keys(&self) -> Result<Vec<PublicKey>> {
        let Some(file) = self.key_file().filter(|_| self.is_used()) else { return Ok(Vec::new()) };
        Ok(read_keys(std::path::Path::new(file))?.iter().map(PrivateKey::public).collect())
    }

    /// Checks what can be checked without the cluster and without reading files.
    pub(crate) fn check(&self) -> Result<()> {
        let name = self.connection.as_str();
        if self.is_used() && self.key_file().is_none() {
            return Err(Error::Config(format!(
                "cluster.connection is {name}, which needs a key: make one with 'podbay keys' and set \
                 cluster.private_key_file"
            )));
        }
        match (self.connection.router(), &self.router) {
            (Some(way), Some(router)) => router.check(way)?,
            (Some(_), None) => {
                return Err(Error::Config(format!(
                    "cluster.connection is {name}, which only mode agent-sandbox has: use auto, exec or in-cluster"
                )));
            }
            (None, _) => {}
        }
        match self.port {
            0 => Err(Error::Config(format!("cluster.port is 0: use a port from 1 to 65535, such as {PORT}"))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_decides_whether_addresses_are_used() {
        let config =
            |connection, private_key_file| AddressConfig { connection, private_key_file, port: 7777, router: None };
        for (connection, key, used) in [
            (Connection::Auto, None, false),
            (Connection::Auto, Some(""), false),
            (Connection::Auto, Some("key"), true),
            (Connection::Exec, Some("key"), false),
            (Connection::InCluster, Some("key"), true),
        ] {
            let config = config(connection, key);
            config.check().unwrap();
            assert_eq!(config.is_used(), used, "{config:?}");
        }
        let error = config(Connection::InCluster, None).check().unwrap_err().to_string();
        assert!(error.contains("podbay keys"), "{error}");
        // Only one of the modes has a router.
        let error = config(Connection::Tunnel, Some("key")).check().unwrap_err().to_string();
        assert!(error.contains("only mode agent-sandbox"), "{error}");
        assert!(AddressConfig { port: 0, ..config(Connection::Auto, None) }.check().is_err());
    }
}
