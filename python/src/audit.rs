//! A Python function that is told of every operation.

use std::io;

use podbay::audit::{Audit, Entry, Observer};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

struct Callback(Py<PyAny>);

impl Observer for Callback {
    fn observe(&self, entry: &Entry) -> io::Result<()> {
        // The thread is one of the runtime's, and Python may keep it waiting: the others take over its work.
        tokio::task::block_in_place(|| {
            let told = Python::try_attach(|py| {
                let meta = PyDict::new(py);
                meta.set_item("time", entry.time_ms as f64 / 1e3)?;
                meta.set_item("sandbox", &entry.sandbox)?;
                meta.set_item("decision", decision(entry))?;
                meta.set_item("bytes", entry.bytes)?;
                meta.set_item("duration", entry.duration_us as f64 / 1e6)?;
                meta.set_item("exit_code", entry.exit)?;
                meta.set_item("error", entry.error.as_deref())?;
                self.0.call1(py, (entry.op, &entry.target, meta)).inspect_err(|error| {
                    // Where it isn't strict the operation goes on; the traceback is seen nevertheless.
                    error.clone_ref(py).write_unraisable(py, Some(self.0.bind(py)));
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

fn decision(entry: &Entry) -> &'static str {
    use podbay::audit::Decision;
    match entry.decision {
        Decision::Begun => "begun",
        Decision::Allowed => "allowed",
        Decision::Failed => "failed",
        Decision::Denied => "denied",
    }
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
    let audit = Audit::new(Callback(callback));
    if strict { audit.strict() } else { audit }
}
