//! A Python function that is told of every operation.

use std::io;

use podbay::audit::{Audit, AuditEntry, Decision, DeniedBy, Observer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

struct Callback {
    function: Py<PyAny>,
    /// Whether it is told before an operation begins, too: then it can refuse it.
    strict: bool,
}

impl Observer for Callback {
    fn observe(&self, entry: &AuditEntry) -> io::Result<()> {
        if entry.outcome.is_none() && !self.strict {
            return Ok(());
        }
        // The thread is one of the runtime's, and Python may keep it waiting: the others take over its work.
        tokio::task::block_in_place(|| {
            let told = Python::try_attach(|py| {
                self.function.call1(py, (entry.op, entry.target(), meta(py, entry)?)).inspect_err(|error| {
                    // Where it isn't strict the operation goes on; the traceback is seen nevertheless.
                    error.clone_ref(py).write_unraisable(py, Some(self.function.bind(py)));
                })
            });
            match told {
                Some(Ok(_)) => Ok(()),
                Some(Err(error)) => Err(io::Error::other(error.to_string())),
                None => Err(io::Error::other("the interpreter is shutting down")),
            }
        })
    }
}

fn meta<'py>(py: Python<'py>, entry: &AuditEntry) -> PyResult<Bound<'py, PyDict>> {
    let outcome = entry.outcome.as_ref();
    let effect = outcome.map(|outcome| &outcome.effect);
    let meta = PyDict::new(py);
    meta.set_item("time", entry.time_ms as f64 / 1e3)?;
    meta.set_item("operation", &entry.operation)?;
    meta.set_item("sandbox", &entry.sandbox)?;
    meta.set_item("decision", entry.decision().map_or("begun", Decision::as_str))?;
    meta.set_item("bytes", effect.and_then(|effect| effect.bytes))?;
    meta.set_item("duration", outcome.map_or(0, |outcome| outcome.duration_us) as f64 / 1e6)?;
    meta.set_item("exit_code", effect.and_then(|effect| effect.exit))?;
    meta.set_item("error", outcome.and_then(|outcome| outcome.error))?;
    let denied_by = outcome.and_then(|outcome| outcome.denied_by);
    meta.set_item("denied_by", denied_by.map(DeniedBy::as_str))?;
    let reason = outcome.and_then(|outcome| outcome.reason.as_ref());
    meta.set_item("reason", loads(py, serde_json::to_string(&reason))?)?;
    meta.set_item("effect", loads(py, serde_json::to_string(&effect))?)?;
    // The whole command line among them: `target` is cut after a screenful.
    meta.set_item("details", loads(py, serde_json::to_string(&*entry.details))?)?;
    Ok(meta)
}

fn loads(py: Python<'_>, json: serde_json::Result<String>) -> PyResult<Bound<'_, PyAny>> {
    let json = json.map_err(|error| PyValueError::new_err(error.to_string()))?;
    py.import("json")?.call_method1("loads", (json,))
}

/// `audit_log`: a function, or the path of a file, which is a setting like others.
pub fn split(audit_log: Option<Bound<'_, PyAny>>) -> (Option<Py<PyAny>>, Option<Bound<'_, PyAny>>) {
    match audit_log {
        Some(log) if log.is_callable() && !log.is_instance_of::<PyString>() => (Some(log.unbind()), None),
        log => (None, log),
    }
}

/// The audit that tells a function.
pub fn audit(callback: Py<PyAny>, strict: bool) -> Audit {
    Audit::new(Callback { function: callback, strict })
}

/// Logs that operations aren't recorded. Python shows it on standard error where no logging is configured.
pub fn warn(message: &str) {
    // As above; handlers may take their time.
    tokio::task::block_in_place(|| {
        Python::try_attach(|py| {
            let logger = py.import("logging").and_then(|logging| logging.call_method1("getLogger", ("podbay",)));
            let logged = logger.and_then(|logger| logger.call_method1("warning", ("%s", message)).map(drop));
            if let Err(error) = logged {
                error.write_unraisable(py, None);
            }
        })
    });
}
