//! What calls return: values with attributes, and a `repr` that helps.

pub mod exec;
pub mod files;
pub mod providers;
pub mod search;
pub mod transfers;

use podbay::files::{Kind, Time};
use pyo3::prelude::*;

/// `Class(field=value, …)` of an object's attributes.
pub fn represent(object: &Bound<'_, PyAny>, fields: &[&str]) -> PyResult<String> {
    let class = object.get_type().name()?;
    let mut parts = Vec::with_capacity(fields.len());
    for field in fields {
        parts.push(format!("{field}={}", object.getattr(*field)?.repr()?));
    }
    Ok(format!("{class}({})", parts.join(", ")))
}

/// Gives classes a `repr` of some of their attributes.
macro_rules! shown {
    ($($class:ident: $($field:literal),+;)+) => {
        $(
            #[pyo3::pymethods]
            impl $class {
                fn __repr__(slf: &pyo3::Bound<'_, Self>) -> pyo3::PyResult<String> {
                    crate::results::represent(slf.as_any(), &[$($field),+])
                }
            }
        )+
    };
}

pub(crate) use shown;

/// Makes a class a sequence of one of its attributes, as far as `for` and `len` go.
macro_rules! iterable {
    ($($class:ident.$field:ident;)+) => {
        $(
            #[pyo3::pymethods]
            impl $class {
                fn __iter__(slf: &pyo3::Bound<'_, Self>) -> pyo3::PyResult<pyo3::Py<pyo3::PyAny>> {
                    use pyo3::types::PyAnyMethods;
                    Ok(slf.as_any().getattr(stringify!($field))?.try_iter()?.into_any().unbind())
                }

                fn __len__(&self) -> usize {
                    self.$field.len()
                }
            }
        )+
    };
}

pub(crate) use iterable;

/// Seconds since 1970, as `os.stat` has them.
pub fn seconds(time: Time) -> f64 {
    time.secs as f64 + f64::from(time.nanos) / 1e9
}

/// Nanoseconds since 1970.
pub fn nanoseconds(time: Time) -> i64 {
    time.secs.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nanos))
}

/// Milliseconds since 1970 as seconds.
pub fn from_milliseconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1e3
}

/// A kind as text.
pub fn kind(kind: Kind) -> &'static str {
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
