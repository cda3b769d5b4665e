//! The names of everything that can go wrong: one table for the command line and the language packages.

use podbay_client::{Error, ErrorCode};
use podbay_k8s::Error as Cluster;

use crate::config::ConfigError;

/// The names of one kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorName {
    /// For programs: in JSON, and as `code` of an exception.
    pub code: &'static str,
    /// The exception in Python and TypeScript.
    pub exception: &'static str,
    /// The exit code of the command line.
    pub exit_code: u8,
    /// What it means, in one sentence.
    pub meaning: &'static str,
}

/// podbay itself failed, not the command in the sandbox.
const FAILED: u8 = 125;

const fn lifecycle(code: &'static str, exception: &'static str, meaning: &'static str) -> ErrorName {
    ErrorName { code, exception, exit_code: FAILED, meaning }
}

const UNREACHABLE: ErrorName =
    lifecycle("unreachable", "Unreachable", "The sandbox or the cluster can't be reached, and retrying didn't help.");
const RESTARTED: ErrorName = lifecycle(
    "sandbox_restarted",
    "SandboxRestarted",
    "The sandbox was restarted during an operation that changes something: it may or may not have happened.",
);
const OVERDUE: ErrorName = lifecycle(
    "deadline_exceeded",
    "DeadlineExceeded",
    "The sandbox is connected but doesn't answer in time, or doesn't say how a command ended: it may or may not have happened, and a command may still run.",
);
const BAD_ANSWER: ErrorName = lifecycle("bad_answer", "BadAnswer", "What the sandbox sent isn't a valid answer.");
const NOT_FOUND: ErrorName = lifecycle("sandbox_not_found", "SandboxNotFound", "No sandbox has that id.");
const CLOSED: ErrorName = lifecycle("closed", "ClosedError", "The object was closed, or its sandbox was deleted.");
const LOCAL_FILE: ErrorName =
    lifecycle("local_file", "LocalFileError", "A file of this machine can't be read or written.");
const CONFIG: ErrorName = lifecycle("config", "ConfigError", "A setting is unknown or invalid.");
const FORBIDDEN: ErrorName = lifecycle(
    "forbidden",
    "PermissionDenied",
    "The account may not do that on the cluster (the message names the verb and the resource), or podbayd refuses its key.",
);
const STARTUP_TIMEOUT: ErrorName = lifecycle(
    "startup_timeout",
    "StartupTimeout",
    "The sandbox's pod or claim wasn't ready in time; the message says how far it got.",
);
const STARTUP_FAILED: ErrorName = lifecycle(
    "startup_failed",
    "StartupFailed",
    "The sandbox's pod or claim, or podbayd in it, can't start; the message has the reason.",
);
const POD_GONE: ErrorName = lifecycle("pod_gone", "PodGone", "The sandbox's pod no longer exists.");
const CONTENDED: ErrorName = lifecycle(
    "contended",
    "Contended",
    "Other clients keep changing or holding the same sandbox or pool: try again later.",
);
const NAME_TAKEN: ErrorName = lifecycle(
    "name_taken",
    "NameTaken",
    "The cluster has something else of that name: choose another id or namespace.",
);
const INVALID_CURSOR: ErrorName = lifecycle(
    "invalid_cursor",
    "InvalidCursor",
    "The cursor of a list is invalid or has expired: list again without it.",
);
const TEMPLATE_NOT_FOUND: ErrorName =
    lifecycle("template_not_found", "TemplateNotFound", "The SandboxTemplate doesn't exist.");
const WARM_POOL_NOT_FOUND: ErrorName = lifecycle(
    "warm_pool_not_found",
    "WarmPoolNotFound",
    "The SandboxWarmPool doesn't exist, or no pool uses the template and none can be created.",
);
const CONTROLLER_MISSING: ErrorName =
    lifecycle("controller_missing", "ControllerMissing", "The cluster doesn't have the agent-sandbox CRDs.");
const SUSPENDED: ErrorName =
    lifecycle("suspended", "SandboxSuspended", "The sandbox is suspended and has to be resumed.");
const PROVIDER: ErrorName = lifecycle("failed", "ProviderError", "A sandbox can't be created, found or deleted.");

/// Failures beside those that a sandbox answers with.
const LIFECYCLE: [ErrorName; 20] = [
    UNREACHABLE,
    RESTARTED,
    OVERDUE,
    BAD_ANSWER,
    NOT_FOUND,
    CLOSED,
    LOCAL_FILE,
    CONFIG,
    FORBIDDEN,
    STARTUP_TIMEOUT,
    STARTUP_FAILED,
    POD_GONE,
    TEMPLATE_NOT_FOUND,
    WARM_POOL_NOT_FOUND,
    CONTROLLER_MISSING,
    SUSPENDED,
    CONTENDED,
    NAME_TAKEN,
    INVALID_CURSOR,
    PROVIDER,
];

impl ErrorName {
    /// The whole table: the codes that a sandbox answers with, then all others.
    pub fn all() -> impl Iterator<Item = Self> {
        let operations = ErrorCode::ALL.iter().map(|(code, meaning)| Self::of_code(*code, meaning.trim()));
        operations.chain(LIFECYCLE)
    }

    /// The name of a failure.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Operation(failed) => {
                let name = Self::all().find(|name| name.code == failed.code.as_str());
                name.unwrap_or(Self::of_code(failed.code, "A code that this version doesn't know."))
            }
            Error::Unreachable { .. } => UNREACHABLE,
            Error::SandboxRestarted { .. } => RESTARTED,
            Error::DeadlineExceeded { .. } | Error::NoAnswer { .. } => OVERDUE,
            Error::VersionMismatch(_) => Self::of_code(ErrorCode::VersionMismatch, ""),
            Error::BadAnswer { .. } => BAD_ANSWER,
            Error::SandboxNotFound(_) => NOT_FOUND,
            Error::Closed(_) => CLOSED,
            Error::Local { .. } => LOCAL_FILE,
            Error::Provider(source) => provider(source.as_ref()),
            _ => PROVIDER,
        }
    }

    /// The name of the failure of an invalid setting.
    pub fn of_config(_: &ConfigError) -> Self {
        CONFIG
    }

    fn of_code(code: ErrorCode, meaning: &'static str) -> Self {
        // Those that Python has a word for have an exception of their own.
        let exception = match code {
            ErrorCode::NotFound => "NotFound",
            ErrorCode::AlreadyExists => "AlreadyExists",
            ErrorCode::IsDirectory => "IsDirectory",
            ErrorCode::NotADirectory => "NotADirectory",
            ErrorCode::PermissionDenied => "PermissionDenied",
            ErrorCode::PolicyDenied | ErrorCode::EscapesRoot => "PolicyDenied",
            ErrorCode::TimedOut => "OperationTimedOut",
            ErrorCode::VersionMismatch => "VersionMismatch",
            _ => "OperationError",
        };
        // As shells do: 126 for a program that can't be run. One that isn't there is 127, by its error number.
        let exit_code = if code == ErrorCode::SpawnFailed { 126 } else { FAILED };
        Self { code: code.as_str(), exception, exit_code, meaning }
    }
}

fn provider(source: &(dyn std::error::Error + Send + Sync + 'static)) -> ErrorName {
    if source.is::<ConfigError>() {
        return CONFIG;
    }
    #[cfg(target_os = "linux")]
    if let Some(podbay_local::Error::BadOptions(_) | podbay_local::Error::BadName(_)) = source.downcast_ref() {
        return CONFIG;
    }
    match source.downcast_ref::<Cluster>() {
        Some(Cluster::PermissionDenied { .. } | Cluster::NeedsKubernetes { .. } | Cluster::AddressRefused(_)) => {
            FORBIDDEN
        }
        Some(Cluster::StartupTimeout { .. } | Cluster::ClaimTimeout { .. }) => STARTUP_TIMEOUT,
        Some(Cluster::TemplateNotFound { .. }) => TEMPLATE_NOT_FOUND,
        Some(Cluster::WarmPoolNotFound { .. } | Cluster::NoPoolForTemplate { .. }) => WARM_POOL_NOT_FOUND,
        Some(Cluster::CrdsMissing(_)) => CONTROLLER_MISSING,
        Some(Cluster::Suspended(_)) => SUSPENDED,
        Some(
            Cluster::Startup { .. }
            | Cluster::ClaimFailed { .. }
            | Cluster::Quota(_)
            | Cluster::Bootstrap(_)
            | Cluster::Architecture { .. }
            | Cluster::MissingTools(_)
            | Cluster::NoDirectory
            | Cluster::UnsuitableRuntime { .. }
            | Cluster::PolicyChanged(_)
            | Cluster::Setup { .. },
        ) => STARTUP_FAILED,
        Some(Cluster::PodGone { .. }) => POD_GONE,
        Some(
            Cluster::Cluster(_)
            | Cluster::NodeLost { .. }
            | Cluster::Upgrade { .. }
            | Cluster::AddressUnusable(_)
            | Cluster::NoAddress(_)
            | Cluster::RouterUnreachable(_)
            | Cluster::IdleUnknown(_),
        ) => UNREACHABLE,
        Some(
            Cluster::Superseded(_)
            | Cluster::Contended { .. }
            | Cluster::Terminating { .. }
            | Cluster::ClaimEnding { .. }
            | Cluster::PoolBusy { .. }
            | Cluster::PoolLockLost { .. },
        ) => CONTENDED,
        Some(Cluster::NotOurs(_)) => NAME_TAKEN,
        Some(Cluster::Cursor(_)) => INVALID_CURSOR,
        Some(Cluster::Config(_)) => CONFIG,
        _ => PROVIDER,
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Provider(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_one_row() {
        let mut codes: Vec<_> = ErrorName::all().map(|name| name.code).collect();
        codes.sort_unstable();
        let all = codes.len();
        codes.dedup();
        assert_eq!(codes.len(), all, "{codes:?}");
        assert!(ErrorName::all().all(|name| name.meaning.ends_with('.')), "a meaning is a sentence");
    }

    #[test]
    fn a_failure_finds_its_row() {
        let operation = podbay_proto::Error::new(ErrorCode::PermissionDenied, "no");
        assert_eq!(ErrorName::of(&operation.into()).exception, "PermissionDenied");
        assert_eq!(ErrorName::of(&Error::SandboxNotFound("x".into())).code, "sandbox_not_found");
        let config = crate::config::Config::default().set("no.such.key", "1").unwrap_err();
        assert_eq!(ErrorName::of(&config.into()).exception, "ConfigError");
    }

    /// Most failures of a cluster once had no name of their own: Python got a plain `ProviderError`.
    #[test]
    fn failures_of_a_cluster_have_names() {
        let how = "was changed by others";
        for (error, exception) in [
            (Cluster::NoDirectory, "StartupFailed"),
            (Cluster::MissingTools("head".into()), "StartupFailed"),
            (Cluster::Setup { how: "failed".into(), output: String::new() }, "StartupFailed"),
            (Cluster::IdleUnknown("no answer".into()), "Unreachable"),
            (Cluster::AddressUnusable("no answer".into()), "Unreachable"),
            (Cluster::RouterUnreachable("no answer".into()), "Unreachable"),
            (Cluster::AddressRefused("podbayd refuses this client".into()), "PermissionDenied"),
            (Cluster::NeedsKubernetes { what: "list sandboxes", right: "list sandboxclaims" }, "PermissionDenied"),
            (Cluster::Superseded("box".into()), "Contended"),
            (Cluster::Contended { what: "the Lease box".into(), how, attempts: 5 }, "Contended"),
            (Cluster::PoolBusy { pool: "default".into(), seconds: 5 }, "Contended"),
            (Cluster::NotOurs("the Lease box".into()), "NameTaken"),
            (Cluster::Cursor("has expired"), "InvalidCursor"),
            // These were `ConfigError`, though no setting is wrong.
            (Cluster::PolicyChanged("pb-net-x".into()), "StartupFailed"),
            (Cluster::UnsuitableRuntime { pod: "box".into() }, "StartupFailed"),
            (Cluster::NoAddress("box".into()), "Unreachable"),
            (Cluster::Manifest { what: "the pod", source: "x".into() }, "ProviderError"),
        ] {
            assert_eq!(ErrorName::of(&error.into()).exception, exception);
        }
    }

    #[test]
    fn every_exception_is_a_class_in_python() {
        let classes = include_str!("../../../python/podbay/errors.py");
        for name in ErrorName::all() {
            assert!(classes.contains(&format!("class {}(", name.exception)), "errors.py lacks {}", name.exception);
        }
    }

    /// The page once claimed to list the codes and didn't.
    #[test]
    fn the_page_about_the_protocol_lists_every_code() {
        let page = include_str!("../../../docs/protocol.md");
        for name in ErrorName::all() {
            let row = format!("| `{}` | `{}` | {} | {} |", name.code, name.exception, name.exit_code, name.meaning);
            assert!(page.contains(&row), "docs/protocol.md lacks the row\n{row}");
        }
    }
}
