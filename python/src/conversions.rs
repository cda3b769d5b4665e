//! Conversions between Python values and the core's types: paths, contents, commands, durations.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use podbay::{Command, Program, RawPath};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyByteArray, PyBytes, PyDelta, PyMapping, PyMappingMethods, PyMemoryView, PyNone, PyString};

/// How `os.fsdecode` puts arbitrary bytes into a string.
const ESCAPE: (&str, &str) = ("utf-8", "surrogateescape");

/// A path in a sandbox. Python passes str, bytes or anything with `__fspath__`, and gets str.
#[derive(Clone)]
pub struct SandboxPath(pub RawPath);

impl<'py> FromPyObject<'_, 'py> for SandboxPath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.cast::<PyString>() {
            return match text.to_str() {
                Ok(text) => Ok(Self(text.into())),
                Err(_) => {
                    let bytes = text.call_method1("encode", ESCAPE)?;
                    Ok(Self(bytes.cast::<PyBytes>()?.as_bytes().into()))
                }
            };
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(bytes.as_bytes().into()));
        }
        match object.call_method0("__fspath__") {
            Ok(path) if path.is_instance_of::<PyString>() || path.is_instance_of::<PyBytes>() => path.extract(),
            _ => Err(wrong_type(object, "a path (str, bytes or os.PathLike)")),
        }
    }
}

impl<'py> IntoPyObject<'py> for SandboxPath {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        match self.0.to_str() {
            Some(text) => Ok(PyString::new(py, text).into_any()),
            None => PyBytes::new(py, self.0.as_bytes()).call_method1("decode", ESCAPE),
        }
    }
}

impl From<&RawPath> for SandboxPath {
    fn from(path: &RawPath) -> Self {
        Self(path.clone())
    }
}

fn wrong_type(object: Borrowed<'_, '_, PyAny>, expected: &str) -> PyErr {
    let got = object.get_type().name().map_or_else(|_| "something else".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("expected {expected}, got {got}"))
}

/// The contents of a file or of standard input. Python passes str or bytes, and gets bytes. Immutable objects aren't copied.
pub struct Content(pub Bytes);

impl<'py> FromPyObject<'_, 'py> for Content {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            let text: PyBackedStr = object.extract().map_err(|error| {
                PyValueError::new_err(format!("the text can't be encoded as UTF-8 ({error}); pass bytes instead"))
            })?;
            return Ok(Self(Bytes::from_owner(TextBytes(text))));
        }
        if object.is_instance_of::<PyBytes>() {
            return Ok(Self(Bytes::from_owner(object.extract::<PyBackedBytes>()?)));
        }
        if object.is_instance_of::<PyByteArray>() || object.is_instance_of::<PyMemoryView>() {
            let bytes = object.py().get_type::<PyBytes>().call1((object,))?;
            return Ok(Self(Bytes::from_owner(bytes.extract::<PyBackedBytes>()?)));
        }
        Err(wrong_type(object, "str or bytes"))
    }
}

struct TextBytes(PyBackedStr);

impl AsRef<[u8]> for TextBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl<'py> IntoPyObject<'py> for Content {
    type Target = PyBytes;
    type Output = Bound<'py, PyBytes>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(PyBytes::new(py, &self.0))
    }
}

/// A command: a shell command line, or a program and its arguments.
pub struct CommandLine(pub Program);

impl<'py> FromPyObject<'_, 'py> for CommandLine {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
            return Ok(Self(Program::Shell(object.extract::<SandboxPath>()?.0)));
        }
        let expected = "a command (a shell command line, or a sequence of program and arguments)";
        let words: Vec<SandboxPath> = object.extract().map_err(|_| wrong_type(object, expected))?;
        if words.is_empty() {
            return Err(PyValueError::new_err("the command is an empty sequence: its first item names the program"));
        }
        Ok(Self(Program::Argv(words.into_iter().map(|word| word.0).collect())))
    }
}

impl From<CommandLine> for Command {
    fn from(line: CommandLine) -> Self {
        match line.0 {
            Program::Shell(line) => Self::shell(line),
            Program::Argv(words) => Self::argv(words),
        }
    }
}

/// A duration: a number of seconds or a `timedelta`.
#[derive(Clone, Copy)]
pub struct Seconds(pub Duration);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let seconds: f64 = if object.is_instance_of::<PyDelta>() {
            object.call_method0("total_seconds")?.extract()?
        } else {
            object.extract().map_err(|_| wrong_type(object, "a duration (seconds or a timedelta)"))?
        };
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|_| PyValueError::new_err(format!("{seconds} isn't a duration: pass 0 or more seconds")))
    }
}

impl Seconds {
    /// Rounds to whole milliseconds; a duration above zero gives at least 1.
    pub fn milliseconds(self) -> u64 {
        let whole = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if self.0.is_zero() { 0 } else { whole.max(1) }
    }
}

/// A duration in any form that a setting takes: seconds, a `timedelta` or a text such as "2h".
#[derive(Clone, Copy)]
pub struct Ttl(pub Duration);

impl Ttl {
    /// Unwraps an optional argument.
    pub fn of(ttl: Option<Self>) -> Option<Duration> {
        ttl.map(|ttl| ttl.0)
    }
}

impl<'py> FromPyObject<'_, 'py> for Ttl {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let config = crate::settings::gather_one("ttl", &object)?;
        config.ttl().map(Self).ok_or_else(|| wrong_type(object, "a duration (seconds, a timedelta or a text)"))
    }
}

/// `None`. Rust's own `()` would become an empty tuple.
pub struct Nothing;

impl<'py> IntoPyObject<'py> for Nothing {
    type Target = PyNone;
    type Output = Borrowed<'py, 'py, PyNone>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(PyNone::get(py))
    }
}

/// Environment variables.
pub struct Environment(pub BTreeMap<String, RawPath>);

impl<'py> FromPyObject<'_, 'py> for Environment {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let pairs = pairs::<SandboxPath>(object, "environment variables (a mapping of str to str or bytes)")?;
        Ok(Self(pairs.into_iter().map(|(name, value)| (name, value.0)).collect()))
    }
}

/// Labels of a sandbox.
pub struct Labels(pub BTreeMap<String, String>);

impl<'py> FromPyObject<'_, 'py> for Labels {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(pairs::<String>(object, "labels (a mapping of str to str)")?.into_iter().collect()))
    }
}

fn pairs<'py, T: pyo3::conversion::FromPyObjectOwned<'py>>(
    object: Borrowed<'_, 'py, PyAny>,
    expected: &str,
) -> PyResult<Vec<(String, T)>> {
    let mapping = object.cast::<PyMapping>().map_err(|_| wrong_type(object, expected))?;
    let pair = |pair: Bound<'py, PyAny>| pair.extract::<(String, T)>().map_err(|_| wrong_type(object, expected));
    mapping.items()?.iter().map(pair).collect()
}
