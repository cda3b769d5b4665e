//! Sandboxes of the agent-sandbox controller, by name.

use std::fmt::{self, Display};

/// The name of a Sandbox (`agents.x-k8s.io`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SandboxName {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The container whose podbayd is meant; the one that listens if none is named.
    pub(crate) container: Option<String>,
}

impl Display for SandboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the Sandbox {}/{}", self.namespace, self.name)
    }
}
