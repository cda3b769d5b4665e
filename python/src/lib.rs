//! The native module of the Python package `podbay`.

use pyo3::prelude::*;

#[pymodule]
mod _native {}
