//! Turns failures into exceptions of `podbay.errors`.

use podbay::config::ConfigError;
use podbay::{Error, ErrorName, OperationError};
use pyo3::exceptions::{PyBaseException, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

use crate::conversions::SandboxPath;

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// An operation on a sandbox, or a provider, failed.
    Podbay(Error),
    /// A setting is invalid.
    Config(ConfigError),
    /// An argument is invalid.
    Argument(String),
    /// This process was forked from one that uses Podbay.
    Forked {
        /// The process that has the threads.
        parent: u32,
    },
    /// The runtime can't be started, or a task of it failed.
    Runtime(String),
    /// Python code raised an exception.
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
            Failure::Forked { parent } => raise(
                py,
                "ForkError",
                format!(
                    "this process was forked from process {parent} after that had used Podbay, and its threads and \
                     connections stayed there: start processes with the method 'spawn' or 'forkserver', or use Podbay only \
                     after the fork"
                ),
            ),
            Failure::Runtime(message) => raise(py, "PodbayError", message),
            Failure::Python(error) => error,
        })
    }
}

/// The exception for a failure; the core's table of errors has its name.
fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let name = ErrorName::of(error);
    let Error::Operation(failed) = error else { return raise(py, name.exception, error.to_string()) };
    let path = failed.path.as_ref().map(SandboxPath::from);
    let arguments = (failed.message.as_str(), name.code, path, failed.count, failed.errno);
    match classes(py).and_then(|module| module.getattr(name.exception)?.call1(arguments)) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// A failure inside a result: the exception object, which isn't raised.
pub enum Exception<'a> {
    /// Any failure.
    Any(&'a Error),
    /// A failure that the sandbox reported.
    Operation(&'a OperationError),
}

impl<'py> IntoPyObject<'py> for Exception<'_> {
    type Target = PyBaseException;
    type Output = Bound<'py, PyBaseException>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        let exception = match self {
            Self::Any(error) => exception(py, error),
            Self::Operation(error) => exception(py, &error.clone().into()),
        };
        Ok(exception.into_value(py).into_bound(py))
    }
}

fn raise(py: Python<'_>, class: &str, message: String) -> PyErr {
    match classes(py).and_then(|module| module.getattr(class)?.call1((message,))) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// The module of the exceptions, which is written in Python because a class there can have two bases.
fn classes(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    MODULE.get_or_try_init(py, || py.import("podbay.errors").map(Bound::unbind)).map(|module| module.bind(py))
}
