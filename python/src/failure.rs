//! From failures to exceptions, which are classes of `podbay.errors`.

use podbay::config::ConfigError;
use podbay::{Error, ErrorName};
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

/// The exception of a failure in Rust, under the name that the table of errors has for it.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let (name, message) = (ErrorName::of(error), error.to_string());
    let Error::Operation(failed) = error else { return raise(py, name.exception, message) };
    let path = failed.path.clone().map(PathText);
    let arguments = (message, name.code, path, failed.count, failed.errno);
    match classes(py).and_then(|module| module.getattr(name.exception)?.call1(arguments)) {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
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
