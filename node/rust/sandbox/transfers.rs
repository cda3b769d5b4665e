//! Transfers between this machine and a sandbox.

use std::path::PathBuf;

use napi::Env;
use napi::bindgen_prelude::{PromiseRaw, Uint8Array, Utf16String};
use napi_derive::napi;
use podbay::Meter;
use podbay::files::{Download, Write};

use super::NativeSandbox;
use crate::conversions::{copied, number, path};
use crate::progress::{ProgressFunction, Reporter};
use crate::promise::{Cancellation, promise};
use crate::results::files::WriteResult;
use crate::results::transfers::{DownloadResult, Transferred, UploadResult};

#[napi]
#[allow(missing_docs)]
impl NativeSandbox {
    #[napi]
    pub fn upload<'env>(
        &self,
        env: &'env Env,
        files: Vec<(Utf16String, Uint8Array)>,
        create_only: bool,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, Vec<UploadResult>>> {
        let files: Vec<_> = files.into_iter().map(|(file, content)| (path(&file), copied(&content))).collect();
        let inner = self.inner.clone();
        promise(env, cancellation, async move {
            let paths: Vec<_> = files.iter().map(|(path, _)| path.clone()).collect();
            let request = |(path, content)| (Write { create_only, ..Write::new(path) }, content);
            let outcomes = inner.open().await?.write_all(files.into_iter().map(request).collect()).await;
            Ok(paths.into_iter().zip(outcomes).map(Into::into).collect())
        })
    }

    #[napi]
    pub fn download<'env>(
        &self,
        env: &'env Env,
        paths: Vec<Utf16String>,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, Vec<DownloadResult>>> {
        let (inner, paths) = (self.inner.clone(), paths.iter().map(|file| path(file)).collect::<Vec<_>>());
        promise(env, cancellation, async move {
            let requests = paths.iter().cloned().map(Download::new).collect();
            let outcomes = inner.open().await?.download_all(requests).await;
            Ok(paths.into_iter().zip(outcomes).map(Into::into).collect())
        })
    }

    #[napi]
    pub fn upload_file<'env>(
        &self,
        env: &'env Env,
        local: String,
        file: Utf16String,
        progress: Option<ProgressFunction>,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, WriteResult>> {
        let (inner, local, file) = (self.inner.clone(), PathBuf::from(local), path(&file));
        promise(env, cancellation, async move {
            let (reporter, sandbox) = (Reporter::new(progress), inner.open().await?);
            let report = |progress| reporter.report(progress);
            let (meter, request) = (Meter::new(&report), Write::new(file));
            Ok(sandbox.upload_file(&local, &request, &meter).await?.into())
        })
    }

    #[napi]
    pub fn download_file<'env>(
        &self,
        env: &'env Env,
        file: Utf16String,
        local: String,
        progress: Option<ProgressFunction>,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, i64>> {
        let (inner, local, file) = (self.inner.clone(), PathBuf::from(local), path(&file));
        promise(env, cancellation, async move {
            let (reporter, sandbox) = (Reporter::new(progress), inner.open().await?);
            let report = |progress| reporter.report(progress);
            let (meter, request) = (Meter::new(&report), Download::new(file));
            Ok(number(sandbox.download_file(&request, &local, &meter).await?.length))
        })
    }

    #[napi]
    pub fn upload_tree<'env>(
        &self,
        env: &'env Env,
        local: String,
        directory: Utf16String,
        progress: Option<ProgressFunction>,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, Transferred>> {
        let (inner, local, directory) = (self.inner.clone(), PathBuf::from(local), path(&directory));
        promise(env, cancellation, async move {
            let (reporter, sandbox) = (Reporter::new(progress), inner.open().await?);
            let report = |progress| reporter.report(progress);
            let meter = Meter::new(&report);
            Ok(sandbox.upload_tree(&local, &directory, &meter).await?.into())
        })
    }

    #[napi]
    pub fn download_tree<'env>(
        &self,
        env: &'env Env,
        directory: Utf16String,
        local: String,
        progress: Option<ProgressFunction>,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, Transferred>> {
        let (inner, local, directory) = (self.inner.clone(), PathBuf::from(local), path(&directory));
        promise(env, cancellation, async move {
            let (reporter, sandbox) = (Reporter::new(progress), inner.open().await?);
            let report = |progress| reporter.report(progress);
            let meter = Meter::new(&report);
            Ok(sandbox.download_tree(&directory, &local, &meter).await?.into())
        })
    }
}
