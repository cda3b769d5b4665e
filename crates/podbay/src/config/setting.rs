//! The table of all settings.

use ProjectPower::{Add, Choose, Lower};

/// What a setting's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Yes or no.
    Flag,
    /// A number.
    Count,
    /// A number with a fraction.
    Real,
    /// Bytes: a number, with `KiB`, `MiB`, `GiB`, `kB`, `MB` or `GB` if wanted.
    Size,
    /// Time: a number of seconds, or with `ms`, `s`, `m`, `h`, `d`.
    Time,
    /// Several texts; in the environment separated by commas.
    List,
    /// The number of a user or group, or `none`.
    Id,
    /// What Kubernetes calls it, in its own shape; in the environment as JSON.
    Tree,
    /// Names with texts; in the environment `NAME=TEXT`, separated by commas.
    Map,
    /// A limit of that kind, or `none` (also `unlimited`).
    Limit(&'static Kind),
}

impl Kind {
    /// The kind of value that a limit has; of anything else its own.
    pub(super) fn of_limit(self) -> Self {
        match self {
            Self::Limit(kind) => *kind,
            kind => kind,
        }
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
    /// Lower it below what holds otherwise: what the user's own file says, else this (without it, there is no limit).
    Lower(Option<&'static str>),
    /// Add to it; nothing that was set elsewhere is replaced or removed.
    Add,
}

impl ProjectPower {
    /// In one word: `no`, `choose`, `lower` or `add`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "no",
            Self::Choose => "choose",
            Self::Lower(_) => "lower",
            Self::Add => "add",
        }
    }
}

/// One setting.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key in the file.
    pub key: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// What it does, and what holds when it isn't set.
    pub help: &'static str,
    /// What a settings file found in a project may do with it.
    pub project: ProjectPower,
}

impl Setting {
    /// Its name in the environment.
    pub fn variable(&self) -> String {
        format!("PODBAY_{}", self.key.to_ascii_uppercase().replace('.', "_"))
    }

    const fn in_project(self, project: ProjectPower) -> Self {
        Self { project, ..self }
    }
}

const fn setting(key: &'static str, kind: Kind, help: &'static str) -> Setting {
    Setting { key, kind, help, project: ProjectPower::Nothing }
}

const COUNT_LIMIT: Kind = Kind::Limit(&Kind::Count);
const TIME_LIMIT: Kind = Kind::Limit(&Kind::Time);

/// All settings.
pub static SETTINGS: &[Setting] = &[
    setting("mode", Kind::Choice(&["local", "raw"]), "which provider makes the sandboxes; local unless set"),
    setting(
        "home",
        Kind::Text,
        "where local sandboxes have their directories; the user's runtime directory unless set",
    ),
    setting("ttl", TIME_LIMIT, "how long a sandbox lives; for ever unless set").in_project(Lower(None)),
    // The flag that chooses a cluster is read after the project, so the cluster's default bounds it everywhere.
    setting(
        "idle_ttl",
        TIME_LIMIT,
        "how long a sandbox may be without use, or none; one day on a cluster and for ever on this machine unless set",
    )
    .in_project(Lower(Some("1d"))),
    setting("env", Kind::Map, "environment variables of every command"),
    setting("labels", Kind::Map, "labels of every sandbox").in_project(Add),
    setting(
        "local.workspace",
        Kind::Text,
        "a directory of this machine at /workspace, kept; {id} stands for the sandbox's id; memory unless set",
    ),
    setting("local.mounts", Kind::List, "more of this machine's files: HOST[:INSIDE[:ro|rw]], read-only unless said"),
    setting(
        "local.network",
        Kind::Choice(&["none", "host", "host-unfenced"]),
        "what network there is; none unless set",
    ),
    setting(
        "local.isolation",
        Kind::Choice(&["namespaces", "landlock"]),
        "how a sandbox is confined; namespaces unless set",
    ),
    setting(
        "local.memory",
        Kind::Limit(&Kind::Size),
        "how much memory a sandbox may use, where a control group can limit it; half of this machine's unless set",
    )
    .in_project(Lower(None)),
    setting(
        "local.cpu",
        Kind::Limit(&Kind::Real),
        "how many processors a sandbox may use, such as 1.5; no limit unless set",
    )
    .in_project(Lower(None)),
    setting("local.processes", COUNT_LIMIT, "how many processes and threads a sandbox may have; 4096 unless set")
        .in_project(Lower(Some("4096"))),
    setting("local.disk", Kind::Size, "how much a sandbox may write; 2 GiB of temporary files unless set")
        .in_project(Lower(Some("2GiB"))),
    setting(
        "local.descriptors",
        COUNT_LIMIT,
        "how many descriptors one process may have open; 16384 unless set, or what the machine allows",
    )
    .in_project(Lower(Some("16384"))),
    setting(
        "cluster.command_filter",
        Kind::Flag,
        "a seccomp filter keeps commands in pods from io_uring, vsock and the like; yes unless set",
    ),
    setting("raw.kubeconfig", Kind::Text, "the kubeconfig file; what kubectl would use unless set"),
    setting("raw.context", Kind::Text, "one of its contexts; the current one unless set"),
    setting("raw.namespace", Kind::Text, "the namespace of the sandboxes; the context's unless set"),
    setting("raw.image", Kind::Text, "the image, which needs a shell and head; python:3.12-slim unless set")
        .in_project(Choose),
    setting(
        "raw.image_pull_policy",
        Kind::Choice(&["Always", "IfNotPresent", "Never"]),
        "when the image is pulled; IfNotPresent unless set",
    ),
    setting("raw.image_pull_secrets", Kind::List, "names of secrets for pulling it; none unless set"),
    setting(
        "raw.image_arch",
        Kind::Choice(&["amd64", "arm64"]),
        "the architecture of the nodes to run on; any that there is a podbayd for unless set",
    ),
    setting(
        "raw.setup_script",
        Kind::Text,
        "a shell script that every new sandbox runs once, before anybody gets it; none unless set",
    ),
    setting("raw.workdir", Kind::Text, "where commands start, an empty volume; /workspace unless set"),
    setting("raw.command", Kind::List, "what the container runs; a shell that waits unless set"),
    setting(
        "raw.env_from",
        Kind::Tree,
        "environment variables from Secrets and ConfigMaps of the namespace; none unless set",
    ),
    setting("raw.cpu_request", Kind::Text, "processor time that is set aside; 100m unless set"),
    setting("raw.cpu_limit", Kind::Text, "the most processor time; 1000m unless set").in_project(Lower(Some("1000m"))),
    setting("raw.memory_request", Kind::Text, "memory that is set aside; 256Mi unless set"),
    setting("raw.memory_limit", Kind::Text, "the most memory; 1Gi unless set").in_project(Lower(Some("1Gi"))),
    setting("raw.ephemeral_storage_request", Kind::Text, "disk that is set aside; 256Mi unless set"),
    setting("raw.ephemeral_storage_limit", Kind::Text, "the most disk, volumes included; 5Gi unless set")
        .in_project(Lower(Some("5Gi"))),
    setting(
        "raw.service_account",
        Kind::Text,
        "the pod's service account, without its token; the default one unless set",
    ),
    setting("raw.node_selector", Kind::Map, "labels of the nodes to run on; any node unless set"),
    setting("raw.tolerations", Kind::Tree, "taints of nodes to put up with; none unless set"),
    setting(
        "raw.node_loss_tolerance",
        Kind::Time,
        "how long a sandbox stays on a node that the cluster has lost touch with; 300 s unless set",
    ),
    setting("raw.affinity", Kind::Tree, "which nodes to prefer or shun; none unless set"),
    setting("raw.runtime_class", Kind::Text, "gVisor, Kata and the like; the cluster's default unless set"),
    setting(
        "raw.user_namespace",
        Kind::Flag,
        "gives pods a user namespace of their own (hostUsers: false), where nodes can; no unless set",
    ),
    setting("raw.volumes", Kind::Tree, "more volumes; none unless set"),
    setting("raw.volume_mounts", Kind::Tree, "where they are in the container; none unless set"),
    setting("raw.init_containers", Kind::Tree, "containers that run first; none unless set"),
    setting("raw.pod_template_overrides", Kind::Tree, "merged into the pod, deeply; nothing unless set"),
    setting(
        "raw.allow_weaker_security",
        Kind::Flag,
        "lets overrides, volumes and init containers weaken what protects the cluster; no unless set",
    ),
    setting("raw.extra_annotations", Kind::Map, "more annotations of the pod; none unless set"),
    setting("raw.label_prefix", Kind::Text, "what comes before the labels of users; user.podbay.dev/ unless set"),
    setting("raw.run_as_user", Kind::Id, "the user's number, none where the cluster chooses it; 1000 unless set"),
    setting("raw.run_as_group", Kind::Id, "the group's number, or none; 1000 unless set"),
    setting("raw.fs_group", Kind::Id, "the number of the group that owns the volumes, or none; 1000 unless set"),
    setting("raw.run_as_non_root", Kind::Flag, "the user root is refused; yes unless set"),
    setting("raw.read_only_root", Kind::Flag, "the image's own files can't be changed; no unless set"),
    setting("raw.seccomp_profile", Kind::Text, "RuntimeDefault, or a profile of the node; RuntimeDefault unless set"),
    setting("raw.block_network", Kind::Flag, "no network but what egress and ingress allow; yes unless set"),
    setting("raw.egress", Kind::Tree, "what may be reached from the sandbox; nothing unless set"),
    setting(
        "raw.cluster_ranges",
        Kind::List,
        "addresses that egress leaves out unless it names them; the private ranges unless set",
    ),
    setting("raw.ingress", Kind::Tree, "who may reach the sandbox; nobody unless set"),
    setting("raw.startup_timeout", Kind::Time, "how long a pod may take to run; 120 s unless set"),
    setting("raw.wait_for_node", Kind::Flag, "waits for a node where nodes are added on demand; no unless set"),
    setting("raw.namespace_per_sandbox", Kind::Flag, "every sandbox has a namespace of its own; no unless set"),
    setting("raw.namespace_labels", Kind::Map, "labels of these namespaces, such as Pod Security's; none unless set"),
    setting("raw.namespace_quota", Kind::Map, "what all in such a namespace may use together; no quota unless set"),
    setting("raw.warm_pool_size", Kind::Count, "how many pods wait to become sandboxes; 0 unless set"),
    setting(
        "raw.warm_pool_name",
        Kind::Text,
        "the pool's name, another for each way to make a pod; default unless set",
    ),
    setting(
        "policy.root",
        Kind::Text,
        "confines file operations to a directory of the sandbox; the whole file system unless set",
    ),
    setting("policy.virtual_mode", Kind::Flag, "paths are relative to policy.root; no unless set"),
    setting("policy.allow_prefixes", Kind::List, "only what lies below these may be changed; everything unless set"),
    setting("policy.deny_prefixes", Kind::List, "what lies below these may not be changed; nothing unless set")
        .in_project(Add),
    setting("policy.rules_for_reads", Kind::Flag, "the prefixes hold for reading too; no unless set"),
    setting("policy.deny_commands", Kind::List, "commands that may not be run, such as \"rm -rf\"; none unless set")
        .in_project(Add),
    setting("policy.match", Kind::Choice(&["words", "substring"]), "how command rules are compared; words unless set"),
    setting("audit.file", Kind::Text, "where every operation is recorded, as lines of JSON; nowhere unless set"),
    setting("audit.strict", Kind::Flag, "what can't be recorded isn't done; no unless set"),
];

pub(super) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

/// Whether a key is the beginning of others.
pub(super) fn is_section(key: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
}

/// The setting whose key is most like this, if any is.
pub(super) fn nearest(key: &str) -> Option<String> {
    // One that stands in the wrong section is meant by its last part.
    let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    let keys = || SETTINGS.iter().map(|setting| setting.key.to_owned());
    closest(key, keys()).or_else(|| {
        let wanted = last(key);
        SETTINGS.iter().find(|setting| distance(&last(setting.key), &wanted) <= 1).map(|setting| setting.key.to_owned())
    })
}

/// The same for the environment.
pub(super) fn nearest_variable(name: &str) -> Option<String> {
    closest(name, SETTINGS.iter().map(Setting::variable)).or_else(|| {
        let wanted = name.strip_prefix("PODBAY_")?;
        SETTINGS.iter().map(Setting::variable).find(|variable| variable.ends_with(&format!("_{wanted}")))
    })
}

fn closest(wanted: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    let (distance, nearest) =
        candidates.map(|candidate| (distance(&candidate, wanted), candidate)).min_by_key(|(distance, _)| *distance)?;
    (distance <= 2.max(wanted.len() / 4).min(4)).then_some(nearest)
}

/// How many letters have to be added, taken away or changed.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
