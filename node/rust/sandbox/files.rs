//! File operations: those with content one by one, and all others in one.

use napi::Env;
use napi::bindgen_prelude::{PromiseRaw, Uint8Array, Utf16String};
use napi_derive::napi;
use podbay::files::{ByteRange, Edit, Read, Write};
use podbay::{DEFAULT_OUTPUT_CAP, PlainRequest};

use super::NativeSandbox;
use super::commands::exec_id;
use crate::conversions::{array, copied, natural, path};
use crate::failure::Failure;
use crate::promise::{Cancellation, promise};
use crate::results::files::{EditResult, ReadResult, WriteResult};

/// Options of `read`.
#[napi(object, object_to_js = false)]
#[allow(missing_docs)]
pub struct ReadOptions {
    pub offset: Option<i64>,
    pub limit: Option<i64>,
    pub max_bytes: Option<i64>,
    pub reserve_bytes: Option<i64>,
    pub max_binary_bytes: Option<i64>,
    pub binary_by_extension: Option<bool>,
    pub count_lines_up_to: Option<i64>,
}

impl ReadOptions {
    fn request(self, path: podbay::RawPath) -> Read {
        let read = Read::new(path);
        Read {
            offset: self.offset.unwrap_or(read.offset),
            limit: self.limit.unwrap_or(read.limit),
            max_bytes: self.max_bytes.map_or(read.max_bytes, natural),
            reserve_bytes: self.reserve_bytes.map_or(read.reserve_bytes, natural),
            max_binary_bytes: self.max_binary_bytes.map_or(read.max_binary_bytes, natural),
            binary_by_extension: self.binary_by_extension.unwrap_or(read.binary_by_extension),
            count_lines_up_to: self.count_lines_up_to.map_or(read.count_lines_up_to, natural),
            ..read
        }
    }
}

/// Options of `write`.
#[napi(object, object_to_js = false)]
#[allow(missing_docs)]
pub struct WriteOptions {
    pub create_only: Option<bool>,
    pub parents: Option<bool>,
    pub mode: Option<u32>,
}

/// Options of `edit`.
#[napi(object, object_to_js = false)]
#[allow(missing_docs)]
pub struct EditOptions {
    pub replace_all: Option<bool>,
    pub fill_empty: Option<bool>,
}

#[napi]
#[allow(missing_docs)]
impl NativeSandbox {
    #[napi]
    pub fn read<'env>(
        &self,
        env: &'env Env,
        file: Utf16String,
        options: ReadOptions,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, ReadResult>> {
        let (inner, request) = (self.inner.clone(), options.request(path(&file)));
        promise(env, cancellation, async move { Ok(inner.open().await?.read(request).await?.into()) })
    }

    #[napi]
    pub fn read_bytes<'env>(
        &self,
        env: &'env Env,
        file: Utf16String,
        start: i64,
        length: Option<i64>,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, Uint8Array>> {
        let (inner, file) = (self.inner.clone(), path(&file));
        let (start, length) = (natural(start), length.map(natural));
        promise(env, cancellation, async move {
            let sandbox = inner.open().await?;
            let content = if start == 0 && length.is_none() {
                sandbox.download(file).await?
            } else {
                let request = Read { bytes: Some(ByteRange { start, length }), ..Read::new(file) };
                sandbox.read(request).await?.1
            };
            Ok(array(&content))
        })
    }

    #[napi]
    pub fn write<'env>(
        &self,
        env: &'env Env,
        file: Utf16String,
        content: &[u8],
        options: WriteOptions,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, WriteResult>> {
        let (inner, content, write) = (self.inner.clone(), copied(content), Write::new(path(&file)));
        let request = Write {
            create_only: options.create_only.unwrap_or(write.create_only),
            parents: options.parents.unwrap_or(write.parents),
            mode: options.mode,
            ..write
        };
        promise(env, cancellation, async move { Ok(inner.open().await?.write(request, content).await?.into()) })
    }

    #[napi]
    pub fn write_output_of<'env>(
        &self,
        env: &'env Env,
        file: Utf16String,
        id: String,
        limit: Option<i64>,
        gap: &[u8],
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, WriteResult>> {
        let (inner, request, gap) = (self.inner.clone(), Write::new(path(&file)), copied(gap));
        let limit = limit.map_or(DEFAULT_OUTPUT_CAP, natural);
        promise(env, cancellation, async move {
            Ok(inner.open().await?.write_output_of(request, exec_id(id)?, limit, gap).await?.into())
        })
    }

    #[napi]
    pub fn edit<'env>(
        &self,
        env: &'env Env,
        file: Utf16String,
        old: &[u8],
        new: &[u8],
        options: EditOptions,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, EditResult>> {
        let (inner, old, new) = (self.inner.clone(), copied(old), copied(new));
        let request = Edit {
            replace_all: options.replace_all.unwrap_or(false),
            fill_empty: options.fill_empty.unwrap_or(false),
            ..Edit::in_file(path(&file))
        };
        promise(env, cancellation, async move { Ok(inner.open().await?.edit(request, &old, &new).await?.into()) })
    }

    /// Performs an operation without content: its request and its answer are those of the protocol, in JSON. `src/files.ts`
    /// converts arguments and results.
    #[napi]
    pub fn perform<'env>(
        &self,
        env: &'env Env,
        operation: String,
        request: String,
        cancellation: Option<&Cancellation>,
    ) -> napi::Result<PromiseRaw<'env, String>> {
        let request =
            PlainRequest::from_json(&operation, &request).map_err(|error| Failure::Argument(error.message))?;
        let inner = self.inner.clone();
        promise(env, cancellation, async move { Ok(inner.open().await?.perform(request).await?) })
    }
}
