//! A Sandbox by its name alone, for clients that may ask nothing of the cluster: the router finds the pod.
//!
//! Nobody checks here that the claim controls the Sandbox and the Sandbox controls the pod. The token names the Sandbox, and a
//! podbayd in any other refuses it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use podbay_client::{ByteStream, Channel, Credential, Opening};

use super::in_cluster::{PodAddresses, Token};
use super::sandbox_name::SandboxName;
use super::{AddressFailure, Dial, DialedChannel};
use crate::error::{Error, Result};

/// Reaches the podbayd of a Sandbox through a router that knows where it is.
#[derive(Debug, Clone)]
pub(crate) struct NamedChannel(DialedChannel<NamedDial>);

#[derive(Clone)]
struct NamedDial {
    addresses: Arc<PodAddresses>,
    sandbox: SandboxName,
    token: Arc<Token>,
    /// A stream that was opened to find out whether there is such a Sandbox.
    opened: Arc<Mutex<Option<Box<dyn ByteStream>>>>,
}

impl fmt::Debug for NamedDial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedDial").field("sandbox", &self.sandbox).finish_non_exhaustive()
    }
}

impl NamedChannel {
    /// Opens the first stream: nothing else tells whether there is such a Sandbox. It has to be used at once.
    ///
    /// # Errors
    /// When the router doesn't lead there, or podbayd refuses this client.
    pub(crate) async fn open_first(addresses: &Arc<PodAddresses>, sandbox: SandboxName) -> Result<Self> {
        let dial = NamedDial { addresses: addresses.clone(), sandbox, token: Arc::default(), opened: Arc::default() };
        let stream = dial.connect().await?;
        dial.opened.lock().unwrap_or_else(PoisonError::into_inner).replace(stream);
        Ok(Self(DialedChannel::new(dial)))
    }
}

impl Channel for NamedChannel {
    fn open(&self) -> Opening<'_> {
        self.0.open()
    }

    fn credential(&self) -> Credential<'_> {
        let token = self.0.dial.token();
        Box::pin(async { Ok(Some(token)) })
    }
}

impl NamedDial {
    fn token(&self) -> String {
        self.token.get_or_sign(|| self.addresses.sign_without_pod(&self.sandbox))
    }

    async fn connect(&self) -> Result<Box<dyn ByteStream>> {
        self.addresses.connect_by_name(&self.sandbox, &self.token()).await.map_err(|failure| explain(&failure))
    }
}

impl Dial for NamedDial {
    type Stream = Box<dyn ByteStream>;

    async fn dial(&self) -> Result<Box<dyn ByteStream>> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        match opened {
            Some(stream) => Ok(stream),
            None => self.connect().await,
        }
    }
}

/// A router that finds no pod can't say why.
fn explain(failure: &AddressFailure) -> Error {
    match failure {
        AddressFailure::Refused(..) => Error::AddressRefused(failure.to_string()),
        AddressFailure::NotListening(place) | AddressFailure::Silent(place, _) => Error::RouterUnreachable(format!(
            "no answer from {place}. Check that a Sandbox with that name is running (for a claim from a warm pool, use \
             the name in the claim's status.sandbox.name, or set agent_sandbox.sandbox_names), that the podbayd in its \
             image listens on that port, and that the router can look up Sandboxes by name (with its cache, or with \
             service: true in the template)"
        )),
        _ => Error::RouterUnreachable(failure.to_string()),
    }
}
