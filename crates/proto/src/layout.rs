//! Where things are in a sandbox: the paths and file names that podbayd, the jail and the providers agree on.
//!
//! Changing one of these keeps clients from attaching to sandboxes that another version created.

/// podbayd's state directory in local sandboxes, and in pods with Podbay's own volumes.
pub const STATE_DIR: &str = "/run/podbay";

/// In a container without [`STATE_DIR`], the bootstrap's second choice: this followed by the user's id.
pub const STATE_DIR_IN_TMP: &str = "/tmp/.podbay-";

/// The bootstrap's last choices: a directory of this name in `$HOME`, then in the working directory.
pub const STATE_DIR_NAME: &str = ".podbay";

/// The sandbox's working directory unless it was given another.
pub const WORKSPACE: &str = "/workspace";

/// Where agent frameworks write, at the root of the file system. Python and TypeScript export the same list.
pub const ARTEFACT_PATHS: [&str; 3] = ["/large_tool_results", "/conversation_history", "/blobs"];

/// podbayd's program in its state directory, in a container that it was copied into.
pub const PROGRAM: &str = "podbayd";

/// podbayd's unix socket in its state directory. Of a local sandbox also in the sandbox's directory on the host.
pub const SOCKET: &str = "podbayd.sock";

/// In the state directory: locked by podbayd as long as it runs.
pub const LOCK: &str = "podbayd.lock";

/// In the state directory: locked by whoever starts podbayd.
pub const START_LOCK: &str = "start.lock";

/// In the state directory: podbayd's standard error.
pub const LOG: &str = "podbayd.log";

/// In the state directory: when the sandbox ends, for podbayd to read after the container was restarted.
pub const LIFETIME: &str = "lifetime.json";

/// In the state directory: one directory for each command, named by its id.
pub const EXEC_DIR: &str = "exec";

/// In the state directory: replaces [`ARTEFACT_PATHS`] where those can't be created.
pub const ARTEFACT_DIR: &str = "artefacts";

/// Environment variables of a podbayd that listens on TCP. A pod's template sets them, or the exec that starts podbayd.
pub mod listen_env {
    /// Where to listen: a port, or an address and a port.
    pub const LISTEN: &str = "PODBAYD_LISTEN";
    /// One or two public keys, separated by commas or white space.
    pub const PUBLIC_KEYS: &str = "PODBAYD_PUBLIC_KEYS";
    /// A file with the public keys, read again for every connection. It wins over [`PUBLIC_KEYS`].
    pub const PUBLIC_KEYS_FILE: &str = "PODBAYD_PUBLIC_KEYS_FILE";
    /// The pod's namespace.
    pub const NAMESPACE: &str = "PODBAYD_NAMESPACE";
    /// The pod's name; may be missing.
    pub const POD: &str = "PODBAYD_POD";
    /// The pod's UID.
    pub const POD_UID: &str = "PODBAYD_POD_UID";
    /// The container's name.
    pub const CONTAINER: &str = "PODBAYD_CONTAINER";
    /// The sandbox's id; may be missing.
    pub const SANDBOX: &str = "PODBAYD_SANDBOX";
    /// The name of the Sandbox (`agents.x-k8s.io`) whose pod this is: the pod's own name, by the downward API. With it, tokens
    /// that name that Sandbox and no pod are accepted; may be missing.
    pub const SANDBOX_OBJECT: &str = "PODBAYD_SANDBOX_OBJECT";
    /// `1` to accept connections from the pod itself, for sidecars that pass connections on.
    pub const ALLOW_LOCAL: &str = "PODBAYD_ALLOW_LOCAL";
    /// Where to serve the API of agent-sandbox's stock runtime, which has no authentication: a port, or an address and a port.
    pub const RUNTIME_API: &str = "PODBAYD_RUNTIME_API";

    /// All of them. They are podbayd's, and its commands don't inherit them.
    pub const ALL: [&str; 11] = [
        LISTEN,
        PUBLIC_KEYS,
        PUBLIC_KEYS_FILE,
        NAMESPACE,
        POD,
        POD_UID,
        CONTAINER,
        SANDBOX,
        SANDBOX_OBJECT,
        ALLOW_LOCAL,
        RUNTIME_API,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The language packages tell agents of these paths, and have them as constants of their own.
    #[test]
    fn the_language_packages_have_the_same_artefact_paths() {
        let paths = ARTEFACT_PATHS.map(|path| format!("{path:?}")).join(", ");
        let python = include_str!("../../../python/podbay/deepagents/__init__.py");
        assert!(python.contains(&format!("ARTEFACT_PATHS = ({paths})\n")), "Python's differ from {paths}");
        let typescript = include_str!("../../../node/src/deepagents/index.ts");
        assert!(
            typescript.contains(&format!("ARTEFACT_PATHS: readonly string[] = [{paths}];")),
            "TypeScript's differ from {paths}"
        );
    }
}
