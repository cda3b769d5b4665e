//! Results of uploads and downloads. `src/results.ts` documents their fields.

use bytes::Bytes;
use napi::bindgen_prelude::{Uint8Array, Utf16String};
use napi_derive::napi;
use podbay::RawPath;
use podbay::files::WriteOutput;
use serde_json::Value as Json;

use super::files::WriteResult;
use crate::conversions::{array, number, text};
use crate::failure::describe;

/// The outcome of uploading one file.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct UploadResult {
    pub path: Utf16String,
    pub result: Option<WriteResult>,
    pub error: Option<Json>,
}

impl From<(RawPath, podbay::Result<WriteOutput>)> for UploadResult {
    fn from((path, outcome): (RawPath, podbay::Result<WriteOutput>)) -> Self {
        let error = outcome.as_ref().err().map(describe);
        Self { path: text(&path), result: outcome.ok().map(Into::into), error }
    }
}

/// The outcome of downloading one file.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct DownloadResult {
    pub path: Utf16String,
    pub content: Option<Uint8Array>,
    pub error: Option<Json>,
}

impl From<(RawPath, podbay::Result<Bytes>)> for DownloadResult {
    fn from((path, outcome): (RawPath, podbay::Result<Bytes>)) -> Self {
        let error = outcome.as_ref().err().map(describe);
        Self { path: text(&path), content: outcome.ok().map(|content| array(&content)), error }
    }
}

/// A path and what is said about it.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct Skipped {
    pub path: String,
    pub reason: String,
}

/// A path that failed.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct FailedTransfer {
    pub path: String,
    pub error: Json,
}

/// The outcome of transferring a directory.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct Transferred {
    pub files: i64,
    pub skipped: Vec<Skipped>,
    pub failed: Vec<FailedTransfer>,
}

impl From<podbay::Transferred> for Transferred {
    fn from(done: podbay::Transferred) -> Self {
        let skipped = |(path, reason)| Skipped { path, reason };
        let failed = |(path, error): (String, podbay::Error)| FailedTransfer { path, error: describe(&error) };
        Self {
            files: number(done.files),
            skipped: done.skipped.into_iter().map(skipped).collect(),
            failed: done.failed.into_iter().map(failed).collect(),
        }
    }
}

/// The progress of a transfer.
#[napi(object, object_from_js = false)]
#[allow(missing_docs)]
pub struct Progress {
    pub files: i64,
    pub bytes: i64,
    pub total_files: Option<i64>,
    pub total_bytes: Option<i64>,
}

impl From<podbay::Progress> for Progress {
    fn from(progress: podbay::Progress) -> Self {
        Self {
            files: number(progress.files),
            bytes: number(progress.bytes),
            total_files: progress.total_files.map(number),
            total_bytes: progress.total_bytes.map(number),
        }
    }
}
