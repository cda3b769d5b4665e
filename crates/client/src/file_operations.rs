//! Operations on a sandbox's files: one request each.

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use podbay_proto::RawPath;
use podbay_proto::files::{
    Delete, DeleteOutput, Download, Edit, EditOutput, Glob, GlobOutput, Grep, GrepOutput, Ls, LsOutput, Mkdir,
    MkdirOutput, Move, MoveOutput, Read, ReadOutput, Stat, StatOutput, Tree, TreeOutput, Write, WriteOutput,
};

use crate::Sandbox;
use crate::connection::Purpose;
use crate::error::{Error, Result};

/// How many files are under way at once when many are sent or fetched.
pub(crate) const AT_ONCE: usize = 128;

impl Sandbox {
    /// Reads a page of a file: what was read, and its content.
    ///
    /// ```no_run
    /// # use podbay_client::{Sandbox, files::Read};
    /// # async fn example(sandbox: Sandbox) -> podbay_client::Result<()> {
    /// let (page, content) = sandbox.read(&Read::new("/etc/hostname")).await?;
    /// println!("{} bytes, {:?}", page.size, content);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When it can't be read, with the sandbox's code.
    pub async fn read(&self, request: &Read) -> Result<(ReadOutput, Bytes)> {
        let most = match request.bytes {
            Some(range) => range.length.unwrap_or(u64::MAX),
            None => request.max_bytes.max(request.max_binary_bytes),
        };
        self.session.call(request, Bytes::new(), Some(usize::try_from(most).unwrap_or(usize::MAX))).await
    }

    /// Creates or replaces a file.
    ///
    /// # Errors
    /// When it can't be written; then nothing has changed.
    pub async fn write(&self, request: &Write, content: impl Into<Bytes>) -> Result<WriteOutput> {
        let content = content.into();
        let request = Write { length: Some(content.len() as u64), ..request.clone() };
        Ok(self.session.call(&request, content, Some(0)).await?.0)
    }

    /// Replaces a text in a file. `payload` is the old text and directly behind it the new one, as [`Edit::new`] makes it.
    ///
    /// # Errors
    /// When the text isn't there or not unique, or the file can't be written; then nothing has changed.
    pub async fn edit(&self, request: &Edit, payload: impl Into<Bytes>) -> Result<EditOutput> {
        Ok(self.session.call(request, payload.into(), Some(0)).await?.0)
    }

    /// Lists a directory.
    ///
    /// # Errors
    /// When it can't be read.
    pub async fn ls(&self, request: &Ls) -> Result<LsOutput> {
        self.session.ask(request).await
    }

    /// Tells what is at a path.
    ///
    /// # Errors
    /// When there is nothing.
    pub async fn stat(&self, request: &Stat) -> Result<StatOutput> {
        self.session.ask(request).await
    }

    /// Finds files by name.
    ///
    /// # Errors
    /// When the search can't be made. A search that found a part says so in its result.
    pub async fn glob(&self, request: &Glob) -> Result<GlobOutput> {
        self.session.ask(request).await
    }

    /// Finds text in files.
    ///
    /// # Errors
    /// When the search can't be made. A search that found a part says so in its result.
    pub async fn grep(&self, request: &Grep) -> Result<GrepOutput> {
        self.session.ask(request).await
    }

    /// Lists a directory and all below it.
    ///
    /// # Errors
    /// When it can't be read.
    pub async fn tree(&self, request: &Tree) -> Result<TreeOutput> {
        self.session.ask(request).await
    }

    /// Deletes a file or a directory.
    ///
    /// # Errors
    /// When it can't be deleted.
    pub async fn delete(&self, request: &Delete) -> Result<DeleteOutput> {
        self.session.ask(request).await
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// When it can't be made.
    pub async fn mkdir(&self, request: &Mkdir) -> Result<MkdirOutput> {
        self.session.ask(request).await
    }

    /// Moves or renames.
    ///
    /// # Errors
    /// When it can't be moved.
    pub async fn relocate(&self, request: &Move) -> Result<MoveOutput> {
        self.session.ask(request).await
    }

    /// Fetches a file whole, into memory.
    ///
    /// # Errors
    /// When it can't be read.
    pub async fn download(&self, request: &Download) -> Result<Bytes> {
        // How large it is isn't known before, so that the windows of the bulk connection are taken to be worth it.
        self.session
            .retry("download", false, Purpose::Bulk, |connection| async move {
                let answer = connection.ask(request, None, Bytes::new()).await?;
                let announced = answer.head.length;
                let most = usize::try_from(announced).unwrap_or(usize::MAX);
                let (_, content) = answer.collect(Some(most)).await?;
                Ok((announced, content))
            })
            .await
            .and_then(|(announced, content)| {
                let changed = content.len() as u64 != announced;
                if changed { Err(shrunk(&request.path, announced, content.len() as u64)) } else { Ok(content) }
            })
    }

    /// Writes many files, all under way at once. The results stand in the order of the files.
    pub async fn write_all(&self, files: Vec<(Write, Bytes)>) -> Vec<Result<WriteOutput>> {
        stream::iter(files)
            .map(|(request, content)| async move { self.write(&request, content).await })
            .buffered(AT_ONCE)
            .collect()
            .await
    }

    /// Fetches many files, all under way at once. The results stand in the order of the paths.
    pub async fn download_all(&self, requests: Vec<Download>) -> Vec<Result<Bytes>> {
        stream::iter(requests)
            .map(|request| async move { self.download(&request).await })
            .buffered(AT_ONCE)
            .collect()
            .await
    }
}

pub(crate) fn shrunk(path: &RawPath, announced: u64, came: u64) -> Error {
    let message = format!("it became shorter while it was read: {came} of {announced} bytes came; try again");
    Error::Operation(podbay_proto::Error::at(podbay_proto::ErrorCode::Conflict, path, message))
}
