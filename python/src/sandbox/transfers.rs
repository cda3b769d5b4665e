//! Files and directories between this machine and a sandbox.

use std::path::PathBuf;

use podbay::Meter;
use podbay::files::{Download, Write};
use pyo3::prelude::*;

use super::Sandbox;
use crate::progress::Reporter;
use crate::results::files::WriteResult;
use crate::results::transfers::{DownloadResult, Transferred, UploadResult};
use crate::text::{Content, RemotePath};
use crate::twins::twins;

twins! {
    impl Sandbox {
        /// Writes many files, all under way at once. What became of each stands in the order of the files; nothing is raised
        /// for a file that failed.
        fn upload / aupload(inner, files: Vec<(RemotePath, Content)>, create_only: bool)
        [files, *, create_only=false] -> Vec<UploadResult> {
            let paths: Vec<_> = files.iter().map(|(path, _)| path.0.clone()).collect();
            let files = files.into_iter();
            let requests = files.map(|(path, content)| (Write { create_only, ..Write::new(path.0) }, content.0));
            let requests = requests.collect();
            let outcomes = inner.open().await?.guarded.write_all(requests).await;
            Ok(paths.into_iter().zip(outcomes).map(|(path, outcome)| UploadResult::new(path, outcome)).collect())
        }

        /// Fetches many files, all under way at once. What became of each stands in the order of the paths; nothing is raised
        /// for a file that failed.
        fn download / adownload(inner, paths: Vec<RemotePath>) [paths] -> Vec<DownloadResult> {
            let paths: Vec<_> = paths.into_iter().map(|path| path.0).collect();
            let requests = paths.iter().cloned().map(Download::new).collect();
            let outcomes = inner.open().await?.guarded.download_all(requests).await;
            Ok(paths.into_iter().zip(outcomes).map(|(path, outcome)| DownloadResult::new(path, outcome)).collect())
        }

        /// Sends a file of this machine, of any size.
        fn upload_file / aupload_file(inner, local: PathBuf, path: RemotePath, progress: Option<Py<PyAny>>)
        [local, path, *, progress=None] -> WriteResult {
            let (reporter, open) = (Reporter::new(progress), inner.open().await?);
            let tell = |progress| reporter.tell(progress);
            let (meter, request) = (Meter::new(&tell), Write::new(path.0));
            Ok(reporter.during(open.guarded.upload_file(&local, &request, &meter)).await?.into())
        }

        /// Fetches a file to this machine, of any size; how many bytes it has. It appears under its name when it is complete.
        fn download_file / adownload_file(inner, path: RemotePath, local: PathBuf, progress: Option<Py<PyAny>>)
        [path, local, *, progress=None] -> u64 {
            let (reporter, open) = (Reporter::new(progress), inner.open().await?);
            let tell = |progress| reporter.tell(progress);
            let (meter, request) = (Meter::new(&tell), Download::new(path.0));
            Ok(reporter.during(open.guarded.download_file(&request, &local, &meter)).await?.length)
        }

        /// Sends a directory of this machine and all below it. Files that are there already are replaced, others stay.
        fn upload_tree / aupload_tree(inner, local: PathBuf, path: RemotePath, progress: Option<Py<PyAny>>)
        [local, path, *, progress=None] -> Transferred {
            let (reporter, open) = (Reporter::new(progress), inner.open().await?);
            let tell = |progress| reporter.tell(progress);
            let meter = Meter::new(&tell);
            Ok(reporter.during(open.guarded.upload_tree(&local, &path.0, &meter)).await?.into())
        }

        /// Fetches a directory and all below it into a directory of this machine, which is made when it isn't there.
        fn download_tree / adownload_tree(inner, path: RemotePath, local: PathBuf, progress: Option<Py<PyAny>>)
        [path, local, *, progress=None] -> Transferred {
            let (reporter, open) = (Reporter::new(progress), inner.open().await?);
            let tell = |progress| reporter.tell(progress);
            let meter = Meter::new(&tell);
            Ok(reporter.during(open.guarded.download_tree(&path.0, &local, &meter)).await?.into())
        }
    }
}
