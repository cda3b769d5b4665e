//! What goes between Python's types and bytes: paths, contents, commands, times.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use podbay::{Command, Program, RawPath};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyByteArray, PyBytes, PyDelta, PyMapping, PyMappingMethods, PyMemoryView, PyNone, PyString};

/// Python's way to have any bytes in a text: `os.fsdecode`.
const ESCAPE: (&str, &str) = ("utf-8", "surrogateescape");

/// A path of a sandbox: text, bytes or anything with `__fspath__`.
pub struct RemotePath(pub RawPath);

impl<'py> FromPyObject<'_, 'py> for RemotePath {
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
            _ => Err(wrong(object, "a path: str, bytes or os.PathLike")),
        }
    }
}

fn wrong(object: Borrowed<'_, '_, PyAny>, wanted: &str) -> PyErr {
    let got = object.get_type().name().map_or_else(|_| "something else".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{wanted} is wanted, not {got}"))
}

/// A path of a sandbox, on its way to Python.
#[derive(Clone)]
pub struct PathText(pub RawPath);

impl<'py> IntoPyObject<'py> for PathText {
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

impl From<&RawPath> for PathText {
    fn from(path: &RawPath) -> Self {
        Self(path.clone())
    }
}

/// A content: text, or bytes of any kind. Immutable ones aren't copied.
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
        Err(wrong(object, "a content: str or bytes"))
    }
}

struct TextBytes(PyBackedStr);

impl AsRef<[u8]> for TextBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A command: a line for the shell, or a program and its arguments.
pub struct Line(pub Program);

impl<'py> FromPyObject<'_, 'py> for Line {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
            return Ok(Self(Program::Shell(object.extract::<RemotePath>()?.0)));
        }
        let wanted = "a command: a line for the shell, or a sequence of words";
        let words: Vec<RemotePath> = object.extract().map_err(|_| wrong(object, wanted))?;
        if words.is_empty() {
            return Err(PyValueError::new_err("an empty sequence is no command: its first word is the program"));
        }
        Ok(Self(Program::Argv(words.into_iter().map(|word| word.0).collect())))
    }
}

impl From<Line> for Command {
    fn from(line: Line) -> Self {
        match line.0 {
            Program::Shell(line) => Self::shell(line),
            Program::Argv(words) => Self::argv(words),
        }
    }
}

/// A time: a number of seconds, or a `timedelta`.
#[derive(Clone, Copy)]
pub struct Seconds(pub Duration);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let seconds: f64 = if object.is_instance_of::<PyDelta>() {
            object.call_method0("total_seconds")?.extract()?
        } else {
            object.extract().map_err(|_| wrong(object, "a time: seconds or a timedelta"))?
        };
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|_| PyValueError::new_err(format!("{seconds} isn't a time: it has to be 0 or more seconds")))
    }
}

impl Seconds {
    /// In whole milliseconds, at least one of them where it isn't nothing.
    pub fn milliseconds(self) -> u64 {
        let whole = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if self.0.is_zero() { 0 } else { whole.max(1) }
    }
}

/// A file's content, on its way to Python.
pub struct FileBytes(pub Bytes);

impl<'py> IntoPyObject<'py> for FileBytes {
    type Target = PyBytes;
    type Output = Bound<'py, PyBytes>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(PyBytes::new(py, &self.0))
    }
}

/// None. Rust's own `()` would become an empty tuple.
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
        let pairs = pairs::<RemotePath>(object, "environment variables: a mapping of str to str or bytes")?;
        Ok(Self(pairs.into_iter().map(|(name, value)| (name, value.0)).collect()))
    }
}

/// Labels of a sandbox.
pub struct Labels(pub BTreeMap<String, String>);

impl<'py> FromPyObject<'_, 'py> for Labels {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(pairs::<String>(object, "labels: a mapping of str to str")?.into_iter().collect()))
    }
}

fn pairs<'py, T: pyo3::conversion::FromPyObjectOwned<'py>>(
    object: Borrowed<'_, 'py, PyAny>,
    wanted: &str,
) -> PyResult<Vec<(String, T)>> {
    let mapping = object.cast::<PyMapping>().map_err(|_| wrong(object, wanted))?;
    let pair = |pair: Bound<'py, PyAny>| pair.extract::<(String, T)>().map_err(|_| wrong(object, wanted));
    mapping.items()?.iter().map(pair).collect()
}

/// How long something may be, as settings have it: seconds, a `timedelta`, or a text such as "2h".
#[derive(Clone, Copy)]
pub struct Lifetime(pub Duration);

impl Lifetime {
    /// The time alone.
    pub fn of(lifetime: Option<Self>) -> Option<Duration> {
        lifetime.map(|lifetime| lifetime.0)
    }
}

impl<'py> FromPyObject<'_, 'py> for Lifetime {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let config = crate::settings::gather_one("ttl", &object)?;
        config.ttl().map(Self).ok_or_else(|| wrong(object, "a time: seconds, a timedelta or a text"))
    }
}
