//! Why a sandbox on a cluster isn't available.

use std::fmt::Display;

/// The result of an operation on a cluster's sandboxes.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a sandbox on a cluster isn't available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster can't be reached.
    #[error("the cluster can't be reached: {0}. Check the kubeconfig and its context")]
    Cluster(String),

    /// The API server refused a request.
    #[error("the API server refused to {what}: {}", describe(source))]
    Api {
        /// What was asked for.
        what: &'static str,
        /// The API server's answer.
        source: Box<kube::Error>,
    },

    /// The account lacks a right.
    #[error(
        "this account may not {what}: {message}. Grant this permission ('podbay doctor' names it), or use another account"
    )]
    PermissionDenied {
        /// What was asked for.
        what: &'static str,
        /// The API server's answer, which names the verb and the resource.
        message: String,
    },

    /// The router alone can't do that.
    #[error(
        "can't {what} through the router alone: that needs access to the Kubernetes API and the right to {right}. Set \
         cluster.kubeconfig (or run in a pod with a service account) and leave agent_sandbox.router_only unset; sandboxes that \
         exist can be attached to without it"
    )]
    NeedsKubernetes {
        /// What was asked for.
        what: &'static str,
        /// The verb and the resource.
        right: &'static str,
    },

    /// A stream into a pod can't be opened.
    #[error("can't open a stream for {what}: {reason}")]
    Upgrade {
        /// What it was for.
        what: &'static str,
        /// Why not.
        reason: String,
    },

    /// The pod's address can't be used, and no other way is allowed.
    #[error(
        "can't connect to the pod's own address: {0}. Set cluster.connection to auto or exec to use pods/exec instead"
    )]
    AddressUnusable(String),

    /// The router doesn't lead to the sandbox, and no other way is allowed.
    #[error(
        "can't reach the sandbox through the router: {0}. 'podbay doctor --mode agent-sandbox' tries each configured connection, \
         and docs/router.md says what each needs"
    )]
    RouterUnreachable(String),

    /// podbayd at the pod's address doesn't accept this client's key, and no other way is allowed.
    #[error(
        "{0}. Use a private key whose public key the sandbox has, or set cluster.connection to auto or exec to use pods/exec \
         instead"
    )]
    AddressRefused(String),

    /// The cluster hasn't given the pod an address yet.
    #[error("the pod of the sandbox {0} has no address yet")]
    NoAddress(String),

    /// The sandbox's pod doesn't exist any more.
    #[error("the sandbox's pod {pod} is gone: {how}. Its files are lost; create a new sandbox")]
    PodGone {
        /// Namespace and name.
        pod: String,
        /// What became of it.
        how: String,
    },

    /// The cluster has lost contact with the pod's node.
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

    /// The namespace's quota is full.
    #[error(
        "the namespace's quota is used up: {0}. Delete sandboxes ('podbay list' shows them), shrink the warm pool, request \
         less (raw.cpu_request, raw.memory_request), or raise the quota"
    )]
    Quota(String),

    /// podbayd couldn't be started in the container.
    #[error("can't start podbayd in the container: {0}")]
    Bootstrap(String),

    /// This build has no podbayd for the node's architecture.
    #[error("this build of Podbay has no podbayd for {arch}: use a build that does, or nodes of another architecture")]
    Architecture {
        /// As `uname -m` prints it.
        arch: String,
    },

    /// podbayd can't be installed through the pod's runtime, and there is no other way.
    #[error(
        "the pod {pod} runs sandboxd, and podbayd can't be installed there without pods/exec. Grant that right, use an image that \
         contains podbayd (podbay install agent-sandbox --podbayd-in-image), or a template with upstream's Python runtime"
    )]
    UnsuitableRuntime {
        /// The pod's name.
        pod: String,
    },

    /// The image lacks the tools that the bootstrap needs.
    #[error(
        "the image has no {0}: use one with a shell, head, chmod, mkdir and mv (BusyBox is enough), or with podbayd"
    )]
    MissingTools(String),

    /// The container has no directory that podbayd can run from.
    #[error(
        "the container has no directory where a program can be written and run: tried /run/podbay, /tmp, the home directory \
         and the working directory. Mount an emptyDir at /run/podbay"
    )]
    NoDirectory,

    /// The pod can't start.
    #[error("the sandbox's pod {pod} can't start: {reason}{events}")]
    Startup {
        /// Namespace and name.
        pod: String,
        /// Why.
        reason: String,
        /// The pod's events, as lines of the message.
        events: String,
    },

    /// The pod took too long to start.
    #[error(
        "the sandbox's pod {pod} wasn't running after {seconds} s ({state}); raise startup_timeout if that is \
         normal{events}"
    )]
    StartupTimeout {
        /// Namespace and name.
        pod: String,
        /// How long was waited.
        seconds: u64,
        /// How far it got.
        state: String,
        /// The pod's events, as lines of the message.
        events: String,
    },

    /// The setup script failed.
    #[error("the setup_script {how}{output}")]
    Setup {
        /// How it ended.
        how: String,
        /// What it printed, as lines of the message.
        output: String,
    },

    /// The sandbox is running and can't be used.
    #[error(transparent)]
    Unusable(podbay_client::Error),

    /// No such sandbox.
    #[error("no sandbox {0:?} in this namespace; 'podbay list' shows all of them")]
    SandboxNotFound(String),

    /// An object of that name exists, but isn't the sandbox that is meant, or wasn't created by Podbay.
    #[error("{0}: choose another id or namespace")]
    NotOurs(String),

    /// Somebody changed a NetworkPolicy that Podbay created, so that it isn't known what it lets through.
    #[error(
        "the NetworkPolicy {0} was changed and doesn't have the rules that its name stands for: delete it, and Podbay creates it \
         again"
    )]
    PolicyChanged(String),

    /// Another client replaced the pod that this one was starting.
    #[error("the sandbox {0} took too long to start, and another client replaced its pod; try again")]
    Superseded(String),

    /// Other clients kept undoing the same step.
    #[error("{what} {how} {attempts} times in a row: stop the other program that does that, then try again")]
    Contended {
        /// The object.
        what: String,
        /// What happened to it.
        how: &'static str,
        /// How often.
        attempts: usize,
    },

    /// The namespace of a deleted sandbox takes too long to go away.
    #[error(
        "the namespace {namespace} of a deleted sandbox with the same name still exists after {seconds} s: see what keeps it \
         with 'kubectl get namespace {namespace} -o yaml', or choose another id"
    )]
    Terminating {
        /// The namespace.
        namespace: String,
        /// How long was waited.
        seconds: u64,
    },

    /// The cluster doesn't know the kinds of agent-sandbox.
    #[error(
        "the cluster doesn't have the agent-sandbox CRDs in version v1beta1 ({0}): install the controller and its extensions \
         (docs/agent-sandbox.md says how), or use mode raw, which needs nothing installed"
    )]
    CrdsMissing(String),

    /// No such template.
    #[error(
        "no SandboxTemplate {template:?} in namespace {namespace}: 'kubectl get sandboxtemplates -n {namespace}' lists them, \
         and 'podbay install agent-sandbox' prints one"
    )]
    TemplateNotFound {
        /// Its name.
        template: String,
        /// The namespace.
        namespace: String,
    },

    /// No such warm pool.
    #[error(
        "no SandboxWarmPool {pool:?} in namespace {namespace}: 'kubectl get sandboxwarmpools -n {namespace}' lists them, and \
         'podbay install agent-sandbox' prints one"
    )]
    WarmPoolNotFound {
        /// Its name.
        pool: String,
        /// The namespace.
        namespace: String,
    },

    /// There is no warm pool for a template, and this account can't create one.
    #[error(
        "no SandboxWarmPool uses the template {template:?}, and this account may not create one. Claims need a \
         pool: ask an administrator to apply this:\n{yaml}"
    )]
    NoPoolForTemplate {
        /// The template.
        template: String,
        /// The pool's manifest.
        yaml: String,
    },

    /// The controller can't fulfil a claim.
    #[error("the SandboxClaim {claim} can't be fulfilled: {reason}: {message}")]
    ClaimFailed {
        /// Namespace and name.
        claim: String,
        /// The reason that the controller gives.
        reason: String,
        /// Its message.
        message: String,
    },

    /// A claim didn't get ready in time.
    #[error(
        "the SandboxClaim {claim} wasn't ready after {seconds} s ({state}); raise agent_sandbox.startup_timeout if that is \
         normal. 'podbay doctor --mode agent-sandbox' looks for the reason, and the controller's log may have it: kubectl logs -n \
         agent-sandbox-system deployment/agent-sandbox-controller"
    )]
    ClaimTimeout {
        /// Namespace and name.
        claim: String,
        /// How long was waited.
        seconds: u64,
        /// How far it got.
        state: String,
    },

    /// A claim that has ended takes too long to go away.
    #[error(
        "the SandboxClaim {claim} of a sandbox that has ended still exists after {seconds} s: see what keeps it with 'kubectl \
         get sandboxclaim {claim} -o yaml', or choose another id"
    )]
    ClaimEnding {
        /// The claim.
        claim: String,
        /// How long was waited.
        seconds: u64,
    },

    /// The sandbox is suspended.
    #[error("the sandbox {0} is suspended: resume it with 'podbay resume {0}', or set agent_sandbox.resume")]
    Suspended(String),

    /// Another client is filling the pool.
    #[error("another client has been filling the pool {pool:?} for {seconds} s: try again later")]
    PoolBusy {
        /// The pool's name.
        pool: String,
        /// How long was waited.
        seconds: u64,
    },

    /// This client lost the pool's Lease while it was filling the pool.
    #[error("stopped filling the pool: the Lease {lease} {how}")]
    PoolLockLost {
        /// The pool's Lease.
        lease: String,
        /// How it was lost.
        how: String,
    },

    /// A list's cursor isn't valid any more, or never was.
    #[error("the list's cursor {0}: start again without it")]
    Cursor(&'static str),

    /// podbayd didn't say whether its sandbox is idle.
    #[error("can't ask podbayd whether the sandbox is idle: {0}")]
    IdleUnknown(String),

    /// An object can't be written as the API server expects it, though nothing is wrong with the settings.
    #[error("can't write the manifest of {what}: {source}. This is a defect in Podbay; please report it")]
    Manifest {
        /// The object.
        what: &'static str,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// A setting or argument isn't valid.
    #[error("{0}")]
    Config(String),
}

impl Error {
    /// Podbay didn't create this object as a sandbox.
    pub(crate) fn not_ours(object: impl Display) -> Self {
        Self::NotOurs(format!("{object} exists and isn't a Podbay sandbox"))
    }

    pub(crate) fn api(what: &'static str) -> impl Fn(kube::Error) -> Self {
        move |source| match source {
            // Quotas, Pod Security and other admission control refuse with 403 too; RBAC says what the account cannot do.
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

    pub(crate) fn manifest<E: std::error::Error + Send + Sync + 'static>(what: &'static str) -> impl Fn(E) -> Self {
        move |source| Self::Manifest { what, source: Box::new(source) }
    }

    /// Whether retrying can't help.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Cluster(_)
            | Self::Upgrade { .. }
            | Self::Bootstrap(_)
            | Self::AddressUnusable(_)
            | Self::RouterUnreachable(_)
            | Self::NoAddress(_)
            | Self::Superseded(_) => false,
            // An exec gets 404 and 400 while a container is being restarted; whether the pod exists is asked before.
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

    /// Whether something can't be created because its namespace is being deleted, or is gone.
    pub(crate) fn is_namespace_gone(&self) -> bool {
        let Self::Api { source, .. } = self else { return false };
        let kube::Error::Api(status) = source.as_ref() else { return false };
        match status.code {
            // https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go
            403 => status.message.contains("because it is being terminated"),
            404 => status.message.starts_with("namespaces "),
            _ => false,
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

/// kube prints an API error twice, once in Rust's debug format.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_takes_too_long_leads_to_the_controllers_log() {
        let state = "DependenciesNotReady".to_owned();
        let error = Error::ClaimTimeout { claim: "agents/box".into(), seconds: 180, state }.to_string();
        let log = "kubectl logs -n agent-sandbox-system deployment/agent-sandbox-controller";
        assert!(
            error.contains("agents/box") && error.contains("DependenciesNotReady") && error.contains(log),
            "{error}"
        );
    }
}
