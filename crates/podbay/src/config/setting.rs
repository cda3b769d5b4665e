//! The table of all settings: the only place that names them.
//!
//! The parser of `podbay.toml`, the environment's variables, the command line's flags and help, `docs/config.md` and Python's
//! dataclasses are made from it. A setting of raw mode fills the field of [`raw::Config`](podbay_k8s::raw::Config) that has its
//! name, one of local mode the field of `podbay_local::Options` or of its limits.

use ProjectPower::{Add, Choose, Lower};

use super::mode;

/// The kind of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingKind {
    /// Any text.
    Text,
    /// A text that is never shown, such as a token.
    Secret,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count,
    /// A number, perhaps with a fraction.
    Real,
    /// Bytes: a number, or one with a unit such as `MiB` or `MB` ([`parse_size`](podbay_client::quantity::parse_size)).
    Size,
    /// A time: seconds, or a number with a unit such as `m` ([`parse_time`](podbay_client::quantity::parse_time)).
    Time,
    /// An amount as Kubernetes writes it, such as `500m` or `1Gi`.
    Quantity,
    /// Several texts; in the environment separated by commas.
    List,
    /// Several mounts ([`MountSpec`](podbay_client::mount::MountSpec)); in the environment separated by commas.
    Mounts,
    /// The number of a user or group, or `none`.
    Id,
    /// An object of the Kubernetes API; in the environment as JSON.
    Object,
    /// A list of objects of the Kubernetes API; in the environment as JSON.
    Objects,
    /// Names with texts; in the environment `NAME=TEXT`, separated by commas.
    Map,
    /// A limit of that kind, or `none` (also `unlimited`).
    Limit(&'static SettingKind),
}

impl SettingKind {
    /// The kind of what is limited; for anything else the kind itself.
    pub fn of_limit(self) -> Self {
        match self {
            Self::Limit(kind) => *kind,
            kind => kind,
        }
    }
}

/// How a value is written: `size|none`, `local|raw`.
impl std::fmt::Display for SettingKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Text | Self::Secret => "text",
            Self::Choice(words) => return f.write_str(&words.join("|")),
            Self::Flag => "true|false",
            Self::Count | Self::Real => "number",
            Self::Size => "size",
            Self::Time => "time",
            Self::Quantity => "quantity",
            Self::List => "list",
            Self::Mounts => "list of mounts",
            Self::Id => "number|none",
            Self::Object => "object",
            Self::Objects => "list of objects",
            Self::Map => "table",
            Self::Limit(limited) => return write!(f, "{limited}|none"),
        })
    }
}

/// What a `podbay.toml` that is merely found in the working directory may do with a setting.
///
/// A sandbox may have written that file, or a cloned repository brought it. So it may set only what can't reach beyond the
/// sandbox, and only in the direction that leaves the sandbox with less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectPower {
    /// Nothing. This is what a setting has unless the table says otherwise.
    Nothing,
    /// Choose any value.
    Choose,
    /// Lower it below what the user's own file says, or else below the default.
    Lower,
    /// Add to it; nothing that was set elsewhere is replaced or removed.
    Add,
}

impl ProjectPower {
    /// In one word: `no`, `choose`, `lower` or `add`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "no",
            Self::Choose => "choose",
            Self::Lower => "lower",
            Self::Add => "add",
        }
    }
}

/// A setting's own flag on the command line. Two settings of different modes can share one: `--memory` is `local.memory` or
/// `raw.memory_limit`, and is read as the first of them in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag {
    /// Its name without the dashes.
    pub name: &'static str,
    /// What help shows in place of a value.
    pub value: &'static str,
    /// Whether every command has it, or only those that create a sandbox.
    pub global: bool,
}

/// One setting.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key in `podbay.toml`.
    pub key: &'static str,
    /// The kind of its value.
    pub kind: SettingKind,
    /// What it does.
    pub help: &'static str,
    /// The default, as it would be written in the environment; nothing where there is none or it isn't a fixed value.
    pub default: Option<&'static str>,
    /// The default in words, where a value alone doesn't say it.
    pub default_note: Option<&'static str>,
    /// What a settings file found in a project may do with it.
    pub project: ProjectPower,
    /// Its flag on the command line; without one it is set by `--set`.
    pub flag: Option<Flag>,
}

impl Setting {
    /// Its name in the environment.
    pub fn variable(&self) -> String {
        variable(self.key)
    }

    /// The default for people to read.
    pub fn default_text(&self) -> &'static str {
        self.default_note.or(self.default).unwrap_or("none")
    }

    /// The modes that it is for.
    pub fn modes(&self) -> &'static [&'static str] {
        match self.key.split_once('.').map_or(self.key, |(section, _)| section) {
            "home" => &["local"],
            "cluster" => &mode::NAMES_ON_CLUSTER,
            section => {
                let of = mode::MODES.iter().find(|mode| mode.section() == section);
                of.map_or(MODES, |mode| std::slice::from_ref(&mode.name))
            }
        }
    }

    /// Checks a value as a flag or variable gives it.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn check(&self, text: &str) -> Result<(), String> {
        super::value::Value::parse(self.kind, text).map(drop)
    }

    const fn is(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    const fn otherwise(self, note: &'static str) -> Self {
        Self { default_note: Some(note), ..self }
    }

    const fn in_project(self, project: ProjectPower) -> Self {
        Self { project, ..self }
    }

    const fn flag(self, name: &'static str, value: &'static str) -> Self {
        Self { flag: Some(Flag { name, value, global: false }), ..self }
    }

    const fn global_flag(self, name: &'static str, value: &'static str) -> Self {
        Self { flag: Some(Flag { name, value, global: true }), ..self }
    }
}

/// The environment's name for a key.
pub(super) fn variable(key: &str) -> String {
    format!("PODBAY_{}", key.to_ascii_uppercase().replace('.', "_"))
}

const fn setting(key: &'static str, kind: SettingKind, help: &'static str) -> Setting {
    Setting { key, kind, help, default: None, default_note: None, project: ProjectPower::Nothing, flag: None }
}

/// The names of all modes.
pub const MODES: &[&str] = &mode::NAMES;

const COUNT_LIMIT: SettingKind = SettingKind::Limit(&SettingKind::Count);
const TIME_LIMIT: SettingKind = SettingKind::Limit(&SettingKind::Time);

/// All settings.
pub static SETTINGS: &[Setting] = &[
    setting("mode", SettingKind::Choice(MODES), "where sandboxes run: on this machine (local), as plain pods on a Kubernetes cluster (raw), or on a cluster with the agent-sandbox controller (agent-sandbox)").is("local").global_flag("mode", "MODE"),
    setting("home", SettingKind::Text, "the directory in which local sandboxes keep their state").otherwise("the user's runtime directory"),
    setting("ttl", TIME_LIMIT, "how long a sandbox lives").in_project(Lower).flag("ttl", "TIME"),
    // The flag that chooses a cluster is read after the project, so the cluster's default bounds a project everywhere.
    setting("idle_ttl", TIME_LIMIT, "how long a sandbox may be idle before it ends").is("1d").otherwise("1d on a cluster, none on this machine").in_project(Lower).flag("idle-ttl", "TIME"),
    setting("env", SettingKind::Map, "environment variables of every command").flag("env", "KEY=VALUE"),
    setting("labels", SettingKind::Map, "labels of every sandbox, for 'podbay list --label'").in_project(Add).flag("label", "KEY=VALUE"),
    setting("local.workspace", SettingKind::Text, "a directory of this machine to use as /workspace, writable; {id} stands for the sandbox's id").otherwise("a temporary one, deleted with the sandbox").flag("workspace", "DIR"),
    setting("local.mounts", SettingKind::Mounts, "additional files and directories of this machine: HOST[:INSIDE][:ro|rw], read-only unless rw").flag("mount", "HOST[:INSIDE][:rw]"),
    setting("local.network", SettingKind::Choice(&["none", "host", "host-unfenced"]), "the network: none; this machine's (host); or this machine's including its abstract Unix sockets (host-unfenced)").is("none").flag("network", "NETWORK"),
    setting("local.isolation", SettingKind::Choice(&["namespaces", "landlock"]), "how a sandbox is isolated; landlock protects less and is for machines without user namespaces").is("namespaces").flag("isolation", "HOW"),
    setting("local.memory", SettingKind::Limit(&SettingKind::Size), "the memory limit, enforced where a cgroup is available").otherwise("half of this machine's").in_project(Lower).flag("memory", "SIZE"),
    setting("local.cpu", SettingKind::Limit(&SettingKind::Real), "the CPU limit, such as 1.5").in_project(Lower).flag("cpus", "NUMBER"),
    setting("local.processes", COUNT_LIMIT, "the limit on processes and threads").is("4096").in_project(Lower).flag("processes", "NUMBER"),
    setting("local.disk", SettingKind::Size, "the disk limit: for all temporary files together, and for each file in a directory of this machine").is("2GiB").otherwise("2GiB of temporary files").in_project(Lower).flag("disk", "SIZE"),
    setting("local.descriptors", COUNT_LIMIT, "the limit on open file descriptors per process, at most the machine's own").is("16384").in_project(Lower),
    setting("cluster.kubeconfig", SettingKind::Text, "the kubeconfig file").otherwise("what kubectl would use; in a pod, the pod's service account").global_flag("kubeconfig", "FILE"),
    setting("cluster.context", SettingKind::Text, "the kubeconfig's context").otherwise("its current context").global_flag("context", "NAME"),
    setting("cluster.namespace", SettingKind::Text, "the namespace of the sandboxes").otherwise("the context's").global_flag("namespace", "NAME"),
    setting("cluster.api_url", SettingKind::Text, "the API server's URL; it replaces the kubeconfig, or only its server if a kubeconfig or context is set too").otherwise("the kubeconfig's"),
    setting("cluster.token", SettingKind::Secret, "a bearer token for the API server; it replaces all other credentials").otherwise("the kubeconfig's credentials; in a pod, its service account's"),
    setting("cluster.token_file", SettingKind::Text, "a file with the bearer token, reread every minute").otherwise("see cluster.token"),
    setting("cluster.ca_file", SettingKind::Text, "a PEM file with the certificate authorities to trust for the API server").otherwise("the kubeconfig's; in a pod, the pod's; else the system's"),
    setting("cluster.command_filter", SettingKind::Flag, "a seccomp filter that keeps commands in pods from io_uring, vsock and new namespaces").is("true"),
    setting("cluster.connection", SettingKind::Choice(&["auto", "exec", "in-cluster", "direct", "gateway", "tunnel"]), "how to reach podbayd in a pod: at the pod's address if there is a private key and the address can be reached, else through pods/exec (auto); always through pods/exec (exec); always at the pod's address (in-cluster); or, in mode agent-sandbox, through the router at a URL (direct), behind a Gateway (gateway), or through a port-forward (tunnel)").is("auto"),
    setting("cluster.private_key_file", SettingKind::Text, "the private key, made by 'podbay keys', that signs tokens for podbayd at the pod's address").otherwise("none: pods/exec is used"),
    setting("cluster.port", SettingKind::Count, "the port on which podbayd listens in pods if there is a private key").is("7777"),
    setting("raw.image", SettingKind::Text, "the container image; it needs a shell and head").is("python:3.12-slim").in_project(Choose).flag("image", "IMAGE"),
    setting("raw.image_pull_policy", SettingKind::Choice(&["Always", "IfNotPresent", "Never"]), "when to pull the image").is("IfNotPresent"),
    setting("raw.image_pull_secrets", SettingKind::List, "the names of Secrets with credentials for pulling the image"),
    setting("raw.image_arch", SettingKind::Choice(&["amd64", "arm64"]), "the architecture of the nodes to run on").otherwise("any that this build supports"),
    setting("raw.setup_script", SettingKind::Text, "a shell script that runs once in every new sandbox before its first use"),
    setting("raw.workdir", SettingKind::Text, "the working directory, an empty volume").is("/workspace"),
    setting("raw.command", SettingKind::List, "the container's command").otherwise("a shell that waits"),
    setting("raw.env_from", SettingKind::Object, "environment variables from Secrets and ConfigMaps of the namespace, by name"),
    setting("raw.cpu_request", SettingKind::Quantity, "the CPU request; lowered to the limit if only that is set").is("100m"),
    setting("raw.cpu_limit", SettingKind::Quantity, "the CPU limit").is("1000m").in_project(Lower).flag("cpus", "NUMBER"),
    setting("raw.memory_request", SettingKind::Quantity, "the memory request; lowered to the limit if only that is set").is("256Mi"),
    setting("raw.memory_limit", SettingKind::Quantity, "the memory limit").is("1Gi").in_project(Lower).flag("memory", "SIZE"),
    setting("raw.ephemeral_storage_request", SettingKind::Quantity, "the ephemeral storage request; lowered to the limit if only that is set").is("256Mi"),
    setting("raw.ephemeral_storage_limit", SettingKind::Quantity, "the ephemeral storage limit, emptyDir volumes included").is("5Gi").in_project(Lower).flag("disk", "SIZE"),
    setting("raw.service_account", SettingKind::Text, "the pod's service account; its token isn't mounted").otherwise("the namespace's default").flag("service-account", "NAME"),
    setting("raw.node_selector", SettingKind::Map, "labels of the nodes to run on"),
    setting("raw.tolerations", SettingKind::Objects, "taints of nodes that the pod tolerates"),
    setting("raw.node_loss_tolerance", SettingKind::Time, "how long a sandbox stays on a node that the cluster has lost contact with").is("300s"),
    setting("raw.affinity", SettingKind::Object, "node and pod affinity"),
    setting("raw.runtime_class", SettingKind::Text, "the RuntimeClass, such as gvisor or kata").otherwise("the cluster's default").flag("runtime-class", "NAME"),
    setting("raw.user_namespace", SettingKind::Flag, "give the pod a user namespace of its own (hostUsers: false), where nodes support it").is("false"),
    setting("raw.volumes", SettingKind::Objects, "additional volumes"),
    setting("raw.volume_mounts", SettingKind::Objects, "where to mount them in the container"),
    setting("raw.init_containers", SettingKind::Objects, "init containers"),
    setting("raw.pod_template_overrides", SettingKind::Object, "merged into the pod, key by key"),
    setting("raw.allow_weaker_security", SettingKind::Flag, "let overrides, volumes and init containers weaken what protects the cluster").is("false"),
    setting("raw.extra_annotations", SettingKind::Map, "additional annotations of the pod"),
    setting("raw.label_prefix", SettingKind::Text, "the prefix of users' labels").is("user.podbay.dev/"),
    setting("raw.run_as_user", SettingKind::Id, "the user ID; none lets the cluster choose, as on OpenShift").is("1000"),
    setting("raw.run_as_group", SettingKind::Id, "the group ID; none lets the cluster choose").is("1000"),
    setting("raw.fs_group", SettingKind::Id, "the group ID that owns the volumes; none lets the cluster choose").is("1000"),
    setting("raw.run_as_non_root", SettingKind::Flag, "refuse to run as root").is("true"),
    setting("raw.read_only_root", SettingKind::Flag, "mount the image's file system read-only").is("false"),
    setting("raw.seccomp_profile", SettingKind::Text, "the seccomp profile: RuntimeDefault, or the path of a profile on the node").is("RuntimeDefault"),
    setting("raw.block_network", SettingKind::Flag, "block all traffic except what egress and ingress allow").is("true"),
    setting("raw.egress", SettingKind::Objects, "what the sandbox may reach, as rules of a NetworkPolicy"),
    setting("raw.cluster_ranges", SettingKind::List, "address ranges that egress excludes unless it names them").otherwise("the private ranges"),
    setting("raw.ingress", SettingKind::Objects, "who may reach the sandbox, as rules of a NetworkPolicy"),
    setting("raw.startup_timeout", SettingKind::Time, "how long a pod may take to start").is("120s").flag("startup-timeout", "TIME"),
    setting("raw.wait_for_node", SettingKind::Flag, "wait for a node instead of failing when none fits, for clusters that add nodes on demand").is("false"),
    setting("raw.namespace_per_sandbox", SettingKind::Flag, "give every sandbox a namespace of its own").is("false"),
    setting("raw.namespace_labels", SettingKind::Map, "labels of these namespaces, such as those of Pod Security"),
    setting("raw.namespace_quota", SettingKind::Map, "the ResourceQuota of such a namespace"),
    setting("raw.warm_pool_size", SettingKind::Count, "how many pods to keep ready in the warm pool").is("0"),
    setting("raw.warm_pool_name", SettingKind::Text, "the warm pool's name; clients whose pods differ need pools with different names").is("default"),
    setting("agent_sandbox.template_name", SettingKind::Text, "the SandboxTemplate; sandboxes are claimed from a warm pool that uses it").flag("template", "NAME"),
    setting("agent_sandbox.warm_pool_name", SettingKind::Text, "the SandboxWarmPool to claim from; it wins over template_name").otherwise("one that uses template_name").flag("warm-pool", "NAME"),
    setting("agent_sandbox.container", SettingKind::Text, "the container of the pod to work in").otherwise("the pod's default container").flag("container", "NAME"),
    setting("agent_sandbox.workdir", SettingKind::Text, "the working directory").otherwise("/workspace if the container has it, else the container's own"),
    setting("agent_sandbox.claim_env", SettingKind::Map, "environment variables of the pod; a claim with these never gets a warm sandbox"),
    setting("agent_sandbox.volume_claim_templates", SettingKind::Objects, "additional PersistentVolumeClaims; a claim with these never gets a warm sandbox"),
    setting("agent_sandbox.pod_labels", SettingKind::Map, "labels of the pod, in a domain that the controller allows, such as sandbox.users.io/team"),
    setting("agent_sandbox.pod_annotations", SettingKind::Map, "annotations of the pod"),
    setting("agent_sandbox.label_prefix", SettingKind::Text, "the prefix of users' labels on the claim; empty for none").is("user.podbay.dev/"),
    setting("agent_sandbox.ttl_after_finished", TIME_LIMIT, "how long a claim stays after its pod has ended"),
    setting("agent_sandbox.startup_timeout", SettingKind::Time, "how long a claim may take to get ready").is("180s").flag("startup-timeout", "TIME"),
    setting("agent_sandbox.resume", SettingKind::Flag, "resume a suspended sandbox when somebody asks for it").is("true"),
    setting("agent_sandbox.runtime", SettingKind::Choice(&["podbayd", "stock"]), "how podbayd is reached through the router: on its own port (podbayd); or, where the router reaches nothing but the port of upstream's stock runtime, over that runtime's API (stock), which is slower and has no authentication").is("podbayd"),
    setting("agent_sandbox.runtime_port", SettingKind::Count, "the port of upstream's stock runtime in the pods; used to install podbayd without exec, and by runtime stock").is("8888"),
    setting("agent_sandbox.router_url", SettingKind::Text, "the router's URL, for connection direct"),
    setting("agent_sandbox.router_only", SettingKind::Flag, "never ask the Kubernetes API: attach to sandboxes that exist through the router at router_url, by the name of their Sandbox").is("false").otherwise("false; true for connection direct if there is neither a kubeconfig nor a service account"),
    setting("agent_sandbox.sandbox_names", SettingKind::Map, "the names of claims' Sandboxes, for an account that may not read the claims; a Sandbox from a warm pool isn't named like its claim").otherwise("named like the claim"),
    setting("agent_sandbox.gateway_name", SettingKind::Text, "the Gateway in front of the router, for connection gateway"),
    setting("agent_sandbox.gateway_namespace", SettingKind::Text, "the Gateway's namespace").is("default"),
    setting("agent_sandbox.gateway_listener", SettingKind::Text, "the name of the Gateway's listener to use").otherwise("its first one for HTTPS, or for HTTP"),
    setting("agent_sandbox.router_namespace", SettingKind::Text, "the namespace of the router's Service, for connection tunnel").is("agent-sandbox-system"),
    setting("agent_sandbox.router_headers", SettingKind::Map, "additional headers of requests to the router, which passes them on to the sandbox: no secrets"),
    setting("agent_sandbox.router_token_file", SettingKind::Text, "a file with a bearer token for the router, read at each connection"),
    setting("agent_sandbox.router_scoped_key_file", SettingKind::Text, "a file with the key of a router that wants scoped tokens; Podbay signs them"),
    setting("agent_sandbox.router_server_name", SettingKind::Text, "the name in the router's certificate and in the header Host").otherwise("the one in its URL, or of the Gateway's listener"),
    setting("agent_sandbox.router_ca_file", SettingKind::Text, "a PEM file with the certificate authorities to trust for the router").otherwise("the system's"),
    setting("agent_sandbox.router_client_cert_file", SettingKind::Text, "a PEM file with a client certificate for the router"),
    setting("agent_sandbox.router_client_key_file", SettingKind::Text, "a PEM file with that certificate's key"),
    setting("agent_sandbox.foreign_claims", SettingKind::Flag, "use claims that other programs created; they are never renewed, suspended or deleted").is("false"),
    setting("policy.root", SettingKind::Text, "confine file operations to this directory of the sandbox").otherwise("the whole file system; /workspace with policy.virtual_mode"),
    setting("policy.virtual_mode", SettingKind::Flag, "interpret paths relative to policy.root").is("false"),
    setting("policy.allow_prefixes", SettingKind::List, "paths below which files may be changed; all others are denied; an empty list allows all").otherwise("all"),
    setting("policy.deny_prefixes", SettingKind::List, "paths below which no file may be changed").in_project(Add),
    setting("policy.rules_for_reads", SettingKind::Flag, "apply the prefixes to reading too").is("false"),
    setting("policy.deny_commands", SettingKind::List, "commands that may not be run, such as \"rm -rf\"").in_project(Add),
    setting("policy.match", SettingKind::Choice(&["words", "substring"]), "how command rules are compared with a command").is("words"),
    setting("audit.file", SettingKind::Text, "a file that records every operation as a line of JSON"),
    setting("audit.strict", SettingKind::Flag, "refuse operations that can't be recorded").is("false"),
    setting("audit.max_bytes", SettingKind::Limit(&SettingKind::Size), "start a new audit file when one has grown to this size").is("64MiB"),
    setting("audit.keep", COUNT_LIMIT, "how many full audit files to keep, at least 1").otherwise("all"),
];
