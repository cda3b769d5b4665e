//! Transfers between this machine and a sandbox.

use std::path::PathBuf;

use podbay::Meter;
use podbay::files::{Download, Write};
use pyo3::prelude::*;

use super::Sandbox;
use super::files::write::WriteResult;
use crate::conversions::{Content, SandboxPath};
use crate::progress::Reporter;
use crate::results::transfers::{DownloadResult, Transferred, UploadResult};
use crate::sync_async::sync_and_async;

sync_and_async! {
    impl Sandbox {
        /// Writes many files concurrently. Returns one result per file, in order; a file that fails doesn't raise.
        fn upload / aupload(inner, files: Vec<(SandboxPath, Content)>, create_only: bool)
        [files, *, create_only=false] -> Vec<UploadResult> {
            let paths: Vec<_> = files.iter().map(|(path, _)| path.0.clone()).collect();
            let files = files.into_iter();
            let requests = files.map(|(path, content)| (Write { create_only, ..Write::new(path.0) }, content.0));
            let requests = requests.collect();
            let outcomes = inner.open().await?.write_all(requests).await;
            Ok(paths.into_iter().zip(outcomes).map(|(path, outcome)| UploadResult::from((path, outcome))).collect())
        }

        /// Reads many files concurrently. Returns one result per path, in order; a file that fails doesn't raise.
        fn download / adownload(inner, paths: Vec<SandboxPath>) [paths] -> Vec<DownloadResult> {
            let paths: Vec<_> = paths.into_iter().map(|path| path.0).collect();
            let requests = paths.iter().cloned().map(Download::new).collect();
            let outcomes = inner.open().await?.download_all(requests).await;
            Ok(paths.into_iter().zip(outcomes).map(|(path, outcome)| DownloadResult::from((path, outcome))).collect())
        }

        /// Uploads a file from this machine, of any size.
        fn upload_file / aupload_file(inner, local: PathBuf, path: SandboxPath, progress: Option<Py<PyAny>>)
        [local, path, *, progress=None] -> WriteResult {
            let (reporter, sandbox) = (Reporter::new(progress), inner.open().await?);
            let report = |progress| reporter.report(progress);
            let (meter, request) = (Meter::new(&report), Write::new(path.0));
            Ok(reporter.during(sandbox.upload_file(&local, &request, &meter)).await?.into())
        }

        /// Downloads a file of any size to this machine. It appears under its name once it is complete. Returns its size in bytes.
        fn download_file / adownload_file(inner, path: SandboxPath, local: PathBuf, progress: Option<Py<PyAny>>)
        [path, local, *, progress=None] -> u64 {
            let (reporter, sandbox) = (Reporter::new(progress), inner.open().await?);
            let report = |progress| reporter.report(progress);
            let (meter, request) = (Meter::new(&report), Download::new(path.0));
            Ok(reporter.during(sandbox.download_file(&request, &local, &meter)).await?.length)
        }

        /// Uploads a directory from this machine, recursively. Existing files are replaced; other files in the target stay.
        fn upload_tree / aupload_tree(inner, local: PathBuf, path: SandboxPath, progress: Option<Py<PyAny>>)
        [local, path, *, progress=None] -> Transferred {
            let (reporter, sandbox) = (Reporter::new(progress), inner.open().await?);
            let report = |progress| reporter.report(progress);
            let meter = Meter::new(&report);
            Ok(reporter.during(sandbox.upload_tree(&local, &path.0, &meter)).await?.into())
        }

        /// Downloads a directory recursively into a directory on this machine, which is created if necessary.
        fn download_tree / adownload_tree(inner, path: SandboxPath, local: PathBuf, progress: Option<Py<PyAny>>)
        [path, local, *, progress=None] -> Transferred {
            let (reporter, sandbox) = (Reporter::new(progress), inner.open().await?);
            let report = |progress| reporter.report(progress);
            let meter = Meter::new(&report);
            Ok(reporter.during(sandbox.download_tree(&path.0, &local, &meter)).await?.into())
        }
    }
}
