//! Result classes: read-only attributes over the core's results, and a helpful `repr`.

pub mod exec;
pub mod providers;
pub mod session;
pub mod transfers;

use podbay::RawPath;
use podbay::files::{Kind, Time};
use pyo3::prelude::*;

/// Formats an object as `Class(field=value, …)`.
pub fn represent(object: &Bound<'_, PyAny>, fields: &[&str]) -> PyResult<String> {
    let class = object.get_type().name()?;
    let mut parts = Vec::with_capacity(fields.len());
    for field in fields {
        parts.push(format!("{field}={}", object.getattr(*field)?.repr()?));
    }
    Ok(format!("{class}({})", parts.join(", ")))
}

/// Defines classes that wrap a result of the core: `Class(Inner) as name, repr(attribute, …) { attribute: Type = expression, }`,
/// where `name` is the wrapped value in the expressions. A text that can only be one of some words says so: `: &str ["a", "b"] =`.
macro_rules! result_class {
    ($(
        $(#[doc = $doc:literal])+
        $class:ident($inner:ty) as $value:ident, repr($($shown:ident),+) {
            $($(#[doc = $attribute_doc:literal])+ $attribute:ident: $kind:ty $([$($word:literal),+])? = $get:expr,)+
        }
    )+) => {
        $(
            $(#[doc = $doc])+
            #[pyo3::pyclass(frozen, module = "podbay")]
            pub struct $class($inner);

            impl From<$inner> for $class {
                fn from(inner: $inner) -> Self {
                    Self(inner)
                }
            }

            #[pyo3::pymethods]
            impl $class {
                $(
                    $(#[doc = $attribute_doc])+
                    #[getter]
                    fn $attribute(&self) -> $kind {
                        let $value = &self.0;
                        $get
                    }
                )+

                fn __repr__(slf: &pyo3::Bound<'_, Self>) -> pyo3::PyResult<String> {
                    crate::results::represent(slf.as_any(), &[$(stringify!($shown)),+])
                }
            }
        )+
    };
}

pub(crate) use result_class;

/// Defines `register`, which adds these classes to the module.
macro_rules! registered {
    ($($class:ident),+ $(,)?) => {
        pub fn register(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
            use pyo3::types::PyModuleMethods;
            $(module.add_class::<$class>()?;)+
            Ok(())
        }
    };
}

pub(crate) use registered;

/// Gives a class `__iter__` and `__len__` over one of its attributes.
macro_rules! iterable {
    ($($class:ident.$attribute:ident: |$value:ident| $len:expr;)+) => {
        $(
            #[pyo3::pymethods]
            impl $class {
                fn __iter__(slf: &pyo3::Bound<'_, Self>) -> pyo3::PyResult<pyo3::Py<pyo3::PyAny>> {
                    use pyo3::types::PyAnyMethods;
                    Ok(slf.as_any().getattr(stringify!($attribute))?.try_iter()?.into_any().unbind())
                }

                fn __len__(&self) -> usize {
                    let $value = &self.0;
                    $len
                }
            }
        )+
    };
}

pub(crate) use iterable;

/// Something found below a directory, with a path relative to it.
pub struct Below<T> {
    directory: RawPath,
    /// What was found.
    pub found: T,
}

impl<T: Clone> Below<T> {
    /// Pairs each item of a list with the directory.
    pub fn all(directory: &RawPath, found: &[T]) -> Vec<Self> {
        found.iter().map(|found| Self { directory: directory.clone(), found: found.clone() }).collect()
    }

    /// Joins the directory and a relative path.
    pub fn join(&self, relative: &RawPath) -> RawPath {
        let mut path = self.directory.as_bytes().to_vec();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(relative.as_bytes());
        path.into()
    }
}

/// Seconds since 1970, as in `os.stat`.
pub fn seconds(time: Time) -> f64 {
    time.secs as f64 + f64::from(time.nanos) / 1e9
}

/// Nanoseconds since 1970.
pub fn nanoseconds(time: Time) -> i64 {
    time.secs.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nanos))
}

/// Converts milliseconds to seconds.
pub fn from_milliseconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1e3
}

/// Converts microseconds to seconds.
pub fn from_microseconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}

/// A kind of file: the stub names the words.
pub type FileKind = &'static str;

/// The kind of a file as Python sees it.
pub fn kind(kind: Kind) -> FileKind {
    match kind {
        Kind::File => "file",
        Kind::Dir => "dir",
        Kind::Link => "link",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice => "char_device",
        Kind::BlockDevice => "block_device",
        _ => "other",
    }
}
