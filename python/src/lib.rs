//! The native module of the Python package `podbay`: converts arguments, results and errors between Python and the core.
//!
//! Every operation exists twice, as a call that blocks with the GIL released and as a coroutine (`sync_async`). Both run on
//! one Tokio runtime (`runtime`); results reach event loops through `loop_wakeup`.

mod arguments;
mod audit;
mod conversions;
mod coroutine;
mod exec;
mod failure;
mod loop_wakeup;
mod manager;
mod progress;
mod provider;
mod results;
mod runtime;
mod sandbox;
mod settings;
mod sync_async;

/// The module; `_native.pyi` has its types.
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
    use crate::results::providers::{Cleaned, Listed, Page, PoolStatus, Stats};
    #[pymodule_export]
    use crate::results::session::{Protection, ProtectionReport, Welcome};
    #[pymodule_export]
    use crate::results::transfers::{DownloadResult, Progress, Transferred, UploadResult};
    #[pymodule_export]
    use crate::sandbox::Sandbox;
    #[pymodule_export]
    use crate::settings::{Setting, effective_settings, settings_of_variables};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::sandbox::files::register(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("SETTINGS", crate::settings::table())?;
        // Tests compare the package with the core's tables.
        let for_users = podbay::OPERATIONS.iter().filter(|operation| operation.for_users);
        let operations: Vec<_> = for_users.map(|operation| operation.name).collect();
        module.setattr("_OPERATIONS", operations)?;
        let errors: Vec<_> = podbay::ErrorName::all().map(|name| (name.code, name.exception)).collect();
        module.setattr("_ERRORS", errors)?;
        // For the package itself.
        module.setattr("_parse_time", wrap_pyfunction!(crate::settings::parse_time, module)?)
    }
}
