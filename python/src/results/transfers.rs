//! Results of uploads and downloads.

use bytes::Bytes;
use podbay::RawPath;
use podbay::files::WriteOutput;

use super::result_class;
use crate::conversions::SandboxPath;
use crate::failure::Exception;
use crate::sandbox::files::write::WriteResult;

result_class! {
    /// The outcome of uploading one file.
    UploadResult((RawPath, podbay::Result<WriteOutput>)) as upload, repr(path, result, error) {
        /// The path, as it was passed in.
        path: SandboxPath = (&upload.0).into(),
        /// The result of the write; None if it failed.
        result: Option<WriteResult> = upload.1.as_ref().ok().cloned().map(Into::into),
        /// Why the file couldn't be written.
        error: Option<Exception<'_>> = upload.1.as_ref().err().map(Exception::Any),
    }

    /// The outcome of downloading one file.
    DownloadResult((RawPath, podbay::Result<Bytes>)) as download, repr(path, error) {
        /// The path, as it was passed in.
        path: SandboxPath = (&download.0).into(),
        /// The file's contents; None if the download failed.
        content: Option<&[u8]> = download.1.as_deref().ok(),
        /// Why the file couldn't be downloaded.
        error: Option<Exception<'_>> = download.1.as_ref().err().map(Exception::Any),
    }

    /// The outcome of transferring a directory.
    Transferred(podbay::Transferred) as done, repr(files, skipped, failed) {
        /// How many files were transferred.
        files: u64 = done.files,
        /// What was skipped, and why.
        skipped: Vec<(String, String)> = done.skipped.clone(),
        /// What failed, with the exception.
        failed: Vec<(&str, Exception<'_>)> = done.failed.iter().map(|(path, error)| (path.as_str(), Exception::Any(error))).collect(),
    }

    /// The progress of a transfer.
    Progress(podbay::Progress) as progress, repr(files, bytes, total_files, total_bytes) {
        /// How many files have been transferred.
        files: u64 = progress.files,
        /// How many bytes have been transferred.
        bytes: u64 = progress.bytes,
        /// How many files there are, once that is known.
        total_files: Option<u64> = progress.total_files,
        /// How many bytes there are, once that is known.
        total_bytes: Option<u64> = progress.total_bytes,
    }
}
