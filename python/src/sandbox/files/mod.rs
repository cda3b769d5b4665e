//! File operations: methods with their result classes. `cargo xtask generate` writes their types in `podbay/_native.pyi`, and the
//! classes' names in `podbay/__init__.py`, from these files.

mod change;
mod list;
mod read;
mod search;
pub mod write;

use podbay::RawPath;
use pyo3::prelude::*;

use crate::conversions::SandboxPath;

fn optional(path: Option<SandboxPath>) -> Option<RawPath> {
    path.map(|path| path.0)
}

/// Adds the result classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for register in [change::register, list::register, read::register, search::register, write::register] {
        register(module)?;
    }
    Ok(())
}
