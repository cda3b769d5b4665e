//! What transfers return.

use bytes::Bytes;
use podbay::files::WriteOutput;
use podbay::{RawPath, Transferred as Done};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::files::WriteResult;
use super::shown;
use crate::failure::exception;
use crate::text::PathText;

/// What became of one file of an upload.
#[pyclass(frozen, module = "podbay")]
pub struct UploadResult {
    path: RawPath,
    outcome: podbay::Result<WriteOutput>,
}

impl UploadResult {
    /// A file's outcome, under the path that the caller gave.
    pub fn new(path: RawPath, outcome: podbay::Result<WriteOutput>) -> Self {
        Self { path, outcome }
    }
}

#[pymethods]
impl UploadResult {
    /// The path, as it was given.
    #[getter]
    fn path(&self) -> PathText {
        (&self.path).into()
    }

    /// What was written.
    #[getter]
    fn result(&self) -> Option<WriteResult> {
        self.outcome.as_ref().ok().cloned().map(Into::into)
    }

    /// Why it couldn't be written.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.outcome.as_ref().err().map(|error| exception(py, error).into_value(py).into_any())
    }
}

/// What became of one file of a download.
#[pyclass(frozen, module = "podbay")]
pub struct DownloadResult {
    path: RawPath,
    outcome: podbay::Result<Bytes>,
}

impl DownloadResult {
    /// A file's outcome, under the path that the caller gave.
    pub fn new(path: RawPath, outcome: podbay::Result<Bytes>) -> Self {
        Self { path, outcome }
    }
}

#[pymethods]
impl DownloadResult {
    /// The path, as it was given.
    #[getter]
    fn path(&self) -> PathText {
        (&self.path).into()
    }

    /// The file's content.
    #[getter]
    fn content<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.outcome.as_ref().ok().map(|content| PyBytes::new(py, content))
    }

    /// Why it couldn't be fetched.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.outcome.as_ref().err().map(|error| exception(py, error).into_value(py).into_any())
    }
}

/// What became of a directory's transfer.
#[pyclass(frozen, module = "podbay")]
pub struct Transferred(Done);

impl From<Done> for Transferred {
    fn from(done: Done) -> Self {
        Self(done)
    }
}

#[pymethods]
impl Transferred {
    /// How many files arrived.
    #[getter]
    fn files(&self) -> u64 {
        self.0.files
    }

    /// What was left out, and why.
    #[getter]
    fn skipped(&self) -> Vec<(String, String)> {
        self.0.skipped.clone()
    }

    /// What failed, with the exception.
    #[getter]
    fn failed(&self, py: Python<'_>) -> Vec<(String, Py<PyAny>)> {
        let failed = self.0.failed.iter();
        failed.map(|(path, error)| (path.clone(), exception(py, error).into_value(py).into_any())).collect()
    }
}

/// How far a transfer is.
#[pyclass(frozen, get_all, module = "podbay")]
pub struct Progress {
    /// Files that have arrived.
    files: u64,
    /// Bytes that were sent or received.
    bytes: u64,
    /// Files in all, once that is known.
    total_files: Option<u64>,
    /// Bytes in all, once that is known.
    total_bytes: Option<u64>,
}

impl From<podbay::Progress> for Progress {
    fn from(progress: podbay::Progress) -> Self {
        Self {
            files: progress.files,
            bytes: progress.bytes,
            total_files: progress.total_files,
            total_bytes: progress.total_bytes,
        }
    }
}

shown! {
    UploadResult: "path", "result", "error";
    DownloadResult: "path", "error";
    Transferred: "files", "skipped", "failed";
    Progress: "files", "bytes", "total_files", "total_bytes";
}
