//! What can go wrong at a pod's address, or on the way to it.

/// Why podbayd can't be used at a pod's address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddressFailure {
    /// Nothing listens there. An exec may change that.
    #[error(
        "nothing listens on {0}: podbayd was started without this client's key, or another program has taken its port"
    )]
    NotListening(String),
    /// The network doesn't lead there.
    #[error(
        "{0} can't be reached ({1}): run this client in the cluster, and allow its connections to that port in the \
         NetworkPolicy (Podbay's own policy allows pods labelled podbay.dev/client=true)"
    )]
    Unreachable(String, String),
    /// podbayd doesn't accept this client's tokens.
    #[error("podbayd on {0} refuses this client: {1}")]
    Refused(String, String),
    /// Something else answers there.
    #[error("{0} can't be used: {1}")]
    NotPodbayd(String, String),
    /// The router can't be reached, or doesn't lead there.
    #[error("{0} can't be used: {1}")]
    Router(String, String),
    /// The router doesn't answer, or gets no answer itself.
    #[error("{0} can't be used: no answer in {1} s")]
    Silent(String, u64),
    /// The router refuses, without a reason.
    #[error(
        "{0} can't be used: the router refused the connection (403{1}). Check agent_sandbox.router_token_file or \
         agent_sandbox.router_scoped_key_file; the Python router also returns 403 when the pod refuses the connection \
         or this client has reached its connection limit"
    )]
    Forbidden(String, String),
}
