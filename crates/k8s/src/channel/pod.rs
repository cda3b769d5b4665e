//! The channel to a container: at its pod's address where that works, and through exec.

use std::net::IpAddr;
use std::sync::Arc;

use podbay_client::{ByteStream, Channel, Credential, Opening};

use super::exec::ExecChannel;
use super::in_cluster::{PodAddresses, Token};
use super::stock_runtime::Brought;
use super::{AddressFailure, Dial, DialedChannel};
use crate::error::{Error, Result};
use crate::lifetime::LifetimeLimits;

/// Reaches the podbayd in a container, and puts it there if it isn't.
#[derive(Debug, Clone)]
pub(crate) struct PodChannel(DialedChannel<PodDial>);

#[derive(Debug, Clone)]
struct PodDial {
    exec: ExecChannel,
    address: Option<Address>,
}

/// The way to a pod's address.
#[derive(Clone)]
struct Address {
    addresses: Arc<PodAddresses>,
    sandbox: String,
    token: Arc<Token>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").field("sandbox", &self.sandbox).finish_non_exhaustive()
    }
}

impl PodChannel {
    /// The channel that goes through exec.
    pub(crate) fn new(exec: ExecChannel) -> Self {
        Self(DialedChannel::new(PodDial { exec, address: None }))
    }

    /// Lets it use the pod's address too.
    #[must_use]
    pub(crate) fn with_addresses(mut self, addresses: Option<&Arc<PodAddresses>>, sandbox: &str) -> Self {
        if let Some(addresses) = addresses {
            let exec = self.0.dial.exec;
            self.0.dial.exec = exec.clone().listening(addresses.listen(exec.container()));
            self.0.dial.address =
                Some(Address { addresses: addresses.clone(), sandbox: sandbox.to_owned(), token: Arc::default() });
        }
        self
    }

    /// Has podbayd end the container when the sandbox's time is up, if it isn't running yet.
    #[must_use]
    pub(crate) fn ending_container_after(mut self, limits: LifetimeLimits) -> Self {
        self.0.dial.exec = self.0.dial.exec.ending_container_after(limits);
        self
    }
}

impl Channel for PodChannel {
    fn open(&self) -> Opening<'_> {
        self.0.open()
    }

    fn credential(&self) -> Credential<'_> {
        let dial = &self.0.dial;
        Box::pin(async move { Ok(dial.address.as_ref().map(|address| address.token(&dial.exec))) })
    }
}

impl Address {
    fn token(&self, exec: &ExecChannel) -> String {
        self.token.get(&self.addresses, exec.container(), &self.sandbox)
    }

    async fn connect(&self, exec: &ExecChannel, address: IpAddr) -> Result<Box<dyn ByteStream>, AddressFailure> {
        self.addresses.connect(exec.container(), address, &self.token(exec)).await
    }

    /// Has the runtime in the pod start podbayd, if there is one. If not, what is wrong is the address.
    async fn connect_without_exec(
        &self,
        exec: &ExecChannel,
        ip: IpAddr,
        silent: &AddressFailure,
    ) -> Result<Box<dyn ByteStream>> {
        if self.addresses.bring(exec).await? == Brought::NoRuntime {
            return Err(self.unusable(silent));
        }
        self.connect(exec, ip).await.map_err(|failure| {
            Error::RouterUnreachable(format!(
                "podbayd was started in the pod by upstream's runtime, but can't be reached there: {failure}. Admit the router to \
                 podbayd's port (cluster.port) in the template's network policy and in the router's own; or set \
                 agent_sandbox.runtime to \"stock\", which carries podbayd's connection over that runtime's own port, slower (docs/runtime.md)"
            ))
        })
    }

    /// What a failure leads to: an error if there is no other way to connect.
    fn give_up(&self, failure: AddressFailure) -> Result<()> {
        match failure {
            _ if !self.addresses.is_only_way() => {
                tracing::debug!(%failure, "using exec instead of the pod's address");
                Ok(())
            }
            AddressFailure::Refused(..) => Err(Error::AddressRefused(failure.to_string())),
            _ => Err(self.unusable(&failure)),
        }
    }

    fn unusable(&self, failure: &AddressFailure) -> Error {
        match self.addresses.is_through_router() {
            true => Error::RouterUnreachable(failure.to_string()),
            false => Error::AddressUnusable(failure.to_string()),
        }
    }
}

impl PodDial {
    /// By exec, or, for those who may not, through a tunnel to the router.
    async fn by_exec(&self) -> Result<Box<dyn ByteStream>> {
        let denied = match self.exec.dial().await {
            Ok(stream) => return Ok(Box::new(stream)),
            Err(error @ Error::PermissionDenied { .. }) => error,
            Err(error) => return Err(error),
        };
        let Some(address) = &self.address else { return Err(denied) };
        let Some(ip) = self.exec.check_address().await? else { return Err(denied) };
        let token = address.token(&self.exec);
        match address.addresses.connect_by_tunnel(self.exec.container(), ip, &token).await {
            Some(Ok(stream)) => Ok(stream),
            Some(Err(failure)) => {
                tracing::warn!(%failure, "can't reach the sandbox through a tunnel to the router either");
                Err(denied)
            }
            None => Err(denied),
        }
    }
}

impl Dial for PodDial {
    type Stream = Box<dyn ByteStream>;

    async fn dial(&self) -> Result<Box<dyn ByteStream>> {
        let Some(address) =
            self.address.as_ref().filter(|address| address.addresses.is_worth_trying(self.exec.container()))
        else {
            return self.by_exec().await;
        };
        // Another pod may have the address by now, and would get what is meant for this one. So the pod is looked at before
        // every connection, as it is before every exec.
        let Some(ip) = self.exec.check_address().await? else { return self.by_exec().await };
        let silent = match address.connect(&self.exec, ip).await {
            Ok(stream) => return Ok(stream),
            // podbayd may not be running yet.
            Err(failure @ (AddressFailure::NotListening(_) | AddressFailure::Forbidden(..))) => failure,
            Err(failure) => {
                address.give_up(failure)?;
                return self.by_exec().await;
            }
        };
        let started = match self.by_exec().await {
            // Clients of images with podbayd in them needn't have that right.
            Err(Error::PermissionDenied { .. }) if address.addresses.is_only_way() => {
                return address.connect_without_exec(&self.exec, ip, &silent).await;
            }
            started => started?,
        };
        match address.connect(&self.exec, ip).await {
            Ok(stream) => Ok(stream),
            Err(failure) => address.give_up(failure).map(|()| started),
        }
    }
}
