//! From failures to exceptions, which are classes of `podbay.errors`.

use podbay::config::ConfigError;
use podbay::{Error, ErrorCode};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

use crate::text::PathText;

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// The sandbox, or its provider, said so.
    Podbay(Error),
    /// A setting makes no sense.
    Config(ConfigError),
    /// An argument makes no sense.
    Argument(String),
    /// The object was closed before.
    Closed(String),
    /// This process is a fork.
    Forked {
        /// The process in which the threads are.
        parent: u32,
    },
    /// There are no threads to work with.
    Runtime(String),
    /// Something in Python raised.
    Python(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Podbay(error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| match failure {
            Failure::Podbay(error) => exception(py, &error),
            Failure::Config(error) => raise(py, "ConfigError", error.to_string()),
            Failure::Argument(message) => PyValueError::new_err(message),
            Failure::Closed(message) => raise(py, "ClosedError", message),
            Failure::Forked { parent } => raise(
                py,
                "ForkError",
                format!(
                    "this process was forked from {parent}, which had used Podbay already: its threads and connections \
                     stayed there. Start processes with the method 'spawn' or 'forkserver', or use Podbay only after the fork"
                ),
            ),
            Failure::Runtime(message) => raise(py, "PodbayError", message),
            Failure::Python(error) => error,
        })
    }
}

/// The exception of a failure in Rust, under the same name.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Operation(failed) => {
            let path = failed.path.clone().map(PathText);
            let arguments = (message, failed.code.as_str(), path, failed.count, failed.errno);
            let class = operation_class(failed.code);
            match classes(py).and_then(|module| module.getattr(class)?.call1(arguments)) {
                Ok(value) => PyErr::from_value(value),
                Err(error) => error,
            }
        }
        Error::Unreachable { .. } => raise(py, "Unreachable", message),
        Error::SandboxRestarted { .. } => raise(py, "SandboxRestarted", message),
        Error::DeadlineExceeded { .. } => raise(py, "DeadlineExceeded", message),
        Error::VersionMismatch(_) => raise(py, "VersionMismatch", message),
        Error::BadAnswer { .. } => raise(py, "BadAnswer", message),
        Error::SandboxNotFound(_) => raise(py, "SandboxNotFound", message),
        Error::Local { .. } => raise(py, "LocalFileError", message),
        Error::Provider(source) => raise(py, provider_class(source.as_ref()), message),
        _ => raise(py, "PodbayError", message),
    }
}

/// Operations fail with a code; those that Python has a word for have a class of their own.
fn operation_class(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::NotFound => "NotFound",
        ErrorCode::AlreadyExists => "AlreadyExists",
        ErrorCode::IsDirectory => "IsDirectory",
        ErrorCode::NotADirectory => "NotADirectory",
        ErrorCode::PermissionDenied => "AccessDenied",
        ErrorCode::PolicyDenied | ErrorCode::EscapesRoot => "PolicyDenied",
        ErrorCode::TimedOut => "OperationTimedOut",
        _ => "OperationError",
    }
}

fn provider_class(source: &(dyn std::error::Error + Send + Sync + 'static)) -> &'static str {
    use podbay::k8s::Error as Cluster;
    if source.is::<ConfigError>() {
        return "ConfigError";
    }
    #[cfg(target_os = "linux")]
    if let Some(podbay::local::Error::BadOptions(_) | podbay::local::Error::BadName(_)) = source.downcast_ref() {
        return "ConfigError";
    }
    match source.downcast_ref::<Cluster>() {
        Some(Cluster::PermissionDenied { .. }) => "PermissionDenied",
        Some(Cluster::StartupTimeout { .. }) => "StartupTimeout",
        Some(Cluster::Startup { .. } | Cluster::Quota(_)) => "StartupFailed",
        Some(Cluster::PodGone { .. }) => "PodGone",
        Some(Cluster::Cluster(_) | Cluster::NodeLost { .. }) => "Unreachable",
        Some(Cluster::Config(_)) => "ConfigError",
        _ => "ProviderError",
    }
}

fn raise(py: Python<'_>, class: &str, message: String) -> PyErr {
    match classes(py).and_then(|module| module.getattr(class)?.call1((message,))) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// The module of the exceptions. It is Python, because there a class can have two bases.
fn classes(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    MODULE.get_or_try_init(py, || py.import("podbay.errors").map(Bound::unbind)).map(|module| module.bind(py))
}
