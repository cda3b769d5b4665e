//! Turns failures into errors of `podbay`.

use napi::Status;
use podbay::config::ConfigError;
use podbay::{Error, ErrorName, OperationError};
use serde_json::{Value as Json, json};

use crate::conversions::printable;

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// An operation on a sandbox, or a provider, failed.
    Podbay(Error),
    /// A setting is invalid.
    Config(ConfigError),
    /// An argument is invalid.
    Argument(String),
    /// The caller cancelled the operation.
    Cancelled,
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

impl From<Failure> for napi::Error {
    /// A rejected promise has no room for a code or a class of ours, so the reason is JSON. `src/errors.ts` reads it.
    fn from(failure: Failure) -> Self {
        let described = match &failure {
            Failure::Podbay(error) => describe(error),
            Failure::Config(error) => named(ErrorName::of_config(error), &error.to_string()),
            Failure::Argument(message) => json!({ "class": "TypeError", "code": "argument", "message": message }),
            Failure::Cancelled => json!({ "class": "AbortError", "code": "aborted", "message": "aborted" }),
        };
        Self::new(Status::GenericFailure, described.to_string())
    }
}

fn named(name: ErrorName, message: &str) -> Json {
    json!({ "class": name.exception, "code": name.code, "message": message })
}

/// A failure as JSON; the core's table of errors has its class and code.
pub fn describe(error: &Error) -> Json {
    let name = ErrorName::of(error);
    match error {
        Error::Operation(failed) => operation(name, failed),
        error => named(name, &error.to_string()),
    }
}

/// A failure that the sandbox reported, as JSON.
pub fn describe_operation(error: &OperationError) -> Json {
    operation(ErrorName::of(&error.clone().into()), error)
}

fn operation(name: ErrorName, failed: &OperationError) -> Json {
    json!({
        "class": name.exception,
        "code": name.code,
        "message": failed.message,
        "path": failed.path.as_ref().map(printable),
        "count": failed.count,
        "errno": failed.errno,
    })
}
