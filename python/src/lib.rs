//! The native module of the Python package `podbay`: the Rust core with Python's types, names and manners.
//!
//! Every operation exists twice, as a call that waits with the GIL released and as a coroutine (`twins`). Both run on one
//! runtime (`runtime`); results come back to event loops through `port`.

mod audit;
mod coroutine;
mod exec;
mod failure;
mod manager;
mod place;
mod port;
mod progress;
mod provider;
mod results;
mod runtime;
mod sandbox;
mod settings;
mod text;
mod twins;

/// The module. What it has is described in `_native.pyi`.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::exec::{AsyncExec, Exec};
    #[pymodule_export]
    use crate::manager::{Manager, sandbox_id};
    #[pymodule_export]
    use crate::provider::Provider;
    #[pymodule_export]
    use crate::results::exec::{CommandInfo, EndEvent, ExecResult, LostEvent, OutputEvent, Process};
    #[pymodule_export]
    use crate::results::files::{
        DeleteResult, EditResult, Entry, LsResult, MkdirResult, MoveResult, Partial, ReadResult, StatResult,
        WriteResult,
    };
    #[pymodule_export]
    use crate::results::providers::{Cleaned, Listed, Page, PoolStatus, Stats, Welcome};
    #[pymodule_export]
    use crate::results::search::{GlobMatch, GlobResult, GrepMatch, GrepResult};
    #[pymodule_export]
    use crate::results::transfers::{DownloadResult, Progress, Transferred, UploadResult};
    #[pymodule_export]
    use crate::sandbox::Sandbox;
    #[pymodule_export]
    use crate::settings::{Setting, effective_settings, settings_of_variables};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("SETTINGS", crate::settings::table())
    }
}
