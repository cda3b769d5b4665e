//! Why a sandbox on a cluster can't be had.

/// The result of an operation on a cluster's sandboxes.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a sandbox on a cluster can't be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no way to the cluster.
    #[error("the cluster can't be reached: {0}. Check the kubeconfig and its context")]
    Cluster(String),

    /// The API server said no.
    #[error("the API server refused to {what}: {}", describe(source))]
    Api {
        /// What was asked for.
        what: &'static str,
        /// What it said.
        source: Box<kube::Error>,
    },

    /// The account may not do that.
    #[error("this account may not {what}: {message}. Grant it that, or use another account")]
    PermissionDenied {
        /// What was asked for.
        what: &'static str,
        /// What the API server said: it names the verb and the resource.
        message: String,
    },

    /// A stream into a pod can't be opened.
    #[error("no stream for {what}: {reason}")]
    Upgrade {
        /// What it was for.
        what: &'static str,
        /// Why not.
        reason: String,
    },

    /// The pod isn't there any more.
    #[error("the sandbox's pod {pod} is gone: {how}. Its files went with it; make a new sandbox")]
    PodGone {
        /// Namespace and name.
        pod: String,
        /// What became of it.
        how: String,
    },

    /// The cluster has lost touch with the pod's node.
    #[error(
        "the sandbox's pod {pod} can't be reached: its node {node} doesn't answer the cluster. The sandbox works again when \
         the node does; if that takes longer than raw.node_loss_tolerance, Kubernetes deletes the pod, and the next caller \
         gets a new, empty one"
    )]
    NodeLost {
        /// Namespace and name.
        pod: String,
        /// The node.
        node: String,
    },

    /// The namespace has no room.
    #[error(
        "the namespace's quota is used up: {0}. Delete sandboxes ('podbay list' shows them), make the warm pool smaller, ask \
         for less (raw.cpu_request, raw.memory_request), or raise the quota"
    )]
    Quota(String),

    /// podbayd couldn't be started in the container.
    #[error("podbayd couldn't be started in the container: {0}")]
    Bootstrap(String),

    /// This build has no podbayd for the node.
    #[error("this build of Podbay has no podbayd that runs on {arch}: use a build that has, or nodes of another kind")]
    Architecture {
        /// As `uname -m` tells it.
        arch: String,
    },

    /// The image is too empty.
    #[error(
        "the image has no {0}: use one with a shell, head, chmod, mkdir and mv (BusyBox is enough), or with podbayd"
    )]
    MissingTools(String),

    /// There is nowhere to put podbayd.
    #[error(
        "the container has no directory where a program can be put and run: tried /run/podbay, /tmp, the home directory and \
         the working directory. Mount an emptyDir at /run/podbay"
    )]
    NoDirectory,

    /// The pod doesn't start.
    #[error("the sandbox's pod {pod} can't start: {reason}{events}")]
    Startup {
        /// Namespace and name.
        pod: String,
        /// Why.
        reason: String,
        /// What the cluster recorded about it.
        events: String,
    },

    /// The pod took too long.
    #[error(
        "the sandbox's pod {pod} wasn't running after {seconds} s ({state}); raise startup_timeout if that is normal{events}"
    )]
    StartupTimeout {
        /// Namespace and name.
        pod: String,
        /// How long was waited.
        seconds: u64,
        /// How far it came.
        state: String,
        /// What the cluster recorded about it.
        events: String,
    },

    /// The setup script failed.
    #[error("the setup_script {how}{output}")]
    Setup {
        /// How it ended.
        how: String,
        /// What it printed, as lines of a message.
        output: String,
    },

    /// The sandbox runs and can't be used.
    #[error(transparent)]
    Unusable(podbay_client::Error),

    /// There is no such sandbox.
    #[error("there is no sandbox {0:?} in this namespace; 'podbay list' shows those that are")]
    SandboxNotFound(String),

    /// Something of that name exists, and Podbay didn't make it, or not as a sandbox.
    #[error("{0} exists and isn't a sandbox of Podbay's: choose another id or namespace")]
    NotOurs(String),

    /// What was asked for can't be.
    #[error("{0}")]
    Config(String),
}

impl Error {
    pub(crate) fn api(what: &'static str) -> impl Fn(kube::Error) -> Self {
        move |source| match source {
            // A quota, Pod Security and other admission control refuse with 403 as well; RBAC says what one cannot do.
            kube::Error::Api(status)
                if status.code == 403 && status.reason == "Forbidden" && status.message.contains(" cannot ") =>
            {
                Self::PermissionDenied { what, message: status.message }
            }
            source @ (kube::Error::Service(_) | kube::Error::HyperError(_)) => {
                Self::Cluster(format!("{} (to {what})", describe(&source)))
            }
            source => Self::Api { what, source: Box::new(source) },
        }
    }

    /// Whether trying again can't help.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Cluster(_) | Self::Upgrade { .. } | Self::Bootstrap(_) => false,
            // 404 and 400 are what an exec gets while a container is being restarted; whether the pod exists is asked before.
            Self::Api { source, .. } => matches!(Self::code(source), Some(401 | 422)),
            _ => true,
        }
    }

    /// The HTTP status of an API server's refusal.
    pub(crate) fn code(error: &kube::Error) -> Option<u16> {
        match error {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        }
    }
}

impl From<Error> for podbay_client::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::SandboxNotFound(id) => Self::SandboxNotFound(id),
            Error::Unusable(error) => error,
            other => Self::Provider(Box::new(other)),
        }
    }
}

/// kube prints an API error twice, once as Rust would.
fn describe(error: &kube::Error) -> String {
    let mut text = match error {
        kube::Error::Api(status) => return format!("{} ({} {})", status.message, status.code, status.reason),
        other => other.to_string(),
    };
    let mut source = std::error::Error::source(error);
    while let Some(reason) = source {
        let reason_text = reason.to_string();
        if !text.contains(&reason_text) {
            text = format!("{text}: {reason_text}");
        }
        source = reason.source();
    }
    text
}
