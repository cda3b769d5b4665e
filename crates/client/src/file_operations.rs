//! Operations on a sandbox's files: one request each.
//!
//! Each method takes a plain path (or pattern) or a request with options.

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use podbay_proto::RawPath;
use podbay_proto::exec::ExecId;
use podbay_proto::files::{CommandOutput, Download, Edit, EditOutput, Read, ReadOutput, Write, WriteOutput};

use crate::Sandbox;
use crate::connection::Purpose;
use crate::error::{Error, Result};
use crate::guard::{Content, Effect, Permit};

/// How many files are under way at once when many are sent or fetched.
pub(crate) const AT_ONCE: usize = 128;

impl Sandbox {
    /// Reads a page of a file: what was read, and its content.
    ///
    /// ```no_run
    /// # use podbay_client::{Sandbox, files::Read};
    /// # async fn example(sandbox: Sandbox) -> podbay_client::Result<()> {
    /// let (page, content) = sandbox.read("/etc/hostname").await?;
    /// println!("{} bytes, {:?}", page.size, content);
    /// let (_, second_page) = sandbox.read(Read::new("long.txt").lines(2000, 2000)).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When it can't be read, with the sandbox's code.
    pub async fn read(&self, request: impl Into<Read>) -> Result<(ReadOutput, Bytes)> {
        let request = request.into();
        let most = match request.bytes {
            Some(range) => range.length.unwrap_or(u64::MAX),
            None => request.max_bytes.max(request.max_binary_bytes),
        };
        self.session.call(request, Bytes::new(), Some(usize::try_from(most).unwrap_or(usize::MAX))).await
    }

    /// Creates or replaces a file.
    ///
    /// ```no_run
    /// # use podbay_client::{Sandbox, files::Write};
    /// # async fn example(sandbox: Sandbox) -> podbay_client::Result<()> {
    /// sandbox.write("hello.txt", "hello").await?;
    /// sandbox.write(Write::new("run.sh").create_only().mode(0o755), "#!/bin/sh\n").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When it can't be written; then nothing has changed.
    pub async fn write(&self, request: impl Into<Write>, content: impl Into<Bytes>) -> Result<WriteOutput> {
        self.write_as("write", request.into(), content.into()).await
    }

    /// Writes under another name for the guard: uploading a small file is a write, and users know it as an upload.
    pub(crate) async fn write_as(
        &self,
        action: &'static str,
        mut request: Write,
        content: Bytes,
    ) -> Result<WriteOutput> {
        request.length = Some(content.len() as u64);
        let permit = Permit::new(self.session.guard(), action, request, Content::Bytes(&content))?;
        Ok(self.session.perform(permit, content, Some(0)).await?.0)
    }

    /// Writes the output of a command that was started before to a file, without fetching it.
    ///
    /// If there are more than `cap` bytes, the beginning and the end are written, and `gap` between them.
    ///
    /// # Errors
    /// When it can't be written, or the command isn't known; then nothing has changed. `bad_message` from a podbayd that is
    /// older than this.
    pub async fn write_output_of(
        &self,
        request: impl Into<Write>,
        id: ExecId,
        cap: u64,
        gap: impl Into<Bytes>,
    ) -> Result<WriteOutput> {
        let gap = gap.into();
        // Not the length of the gap, so that a podbayd that takes that for the content writes nothing.
        let length = Some(cap.max(gap.len() as u64 + 1));
        let request = Write { output_of: Some(CommandOutput { id, cap }), length, ..request.into() };
        let permit = Permit::new(self.session.guard(), "write", request, Content::of(&gap))?;
        Ok(self.session.perform(permit, gap, Some(0)).await?.0)
    }

    /// Replaces a text in a file.
    ///
    /// ```no_run
    /// # use podbay_client::{Sandbox, files::Edit};
    /// # async fn example(sandbox: Sandbox) -> podbay_client::Result<()> {
    /// sandbox.edit("settings.py", "DEBUG = True", "DEBUG = False").await?;
    /// sandbox.edit(Edit::in_file("settings.py").replace_all(), "http:", "https:").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the text isn't there or not unique, or the file can't be written; then nothing has changed.
    pub async fn edit(
        &self,
        request: impl Into<Edit>,
        old: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
    ) -> Result<EditOutput> {
        let (old, new) = (old.as_ref(), new.as_ref());
        let (old_length, new_length) = (old.len() as u64, new.len() as u64);
        let request = Edit { old_length, new_length, ..request.into() };
        Ok(self.session.call(request, [old, new].concat().into(), Some(0)).await?.0)
    }

    /// Fetches a whole file into memory.
    ///
    /// # Errors
    /// When it can't be read.
    pub async fn download(&self, request: impl Into<Download>) -> Result<Bytes> {
        let permit = self.session.permit(request.into(), Content::Nothing)?;
        let content = self.download_content(&permit).await;
        permit.finish(content, |content| Effect::bytes(content.len() as u64))
    }

    async fn download_content(&self, permit: &Permit<Download>) -> Result<Bytes> {
        // How large it is isn't known before, so the windows of the bulk connection are taken to be worth it.
        let (announced, content) = self
            .session
            .retry("download", false, Purpose::Bulk, |connection| async move {
                let answer = connection.ask(permit, None, Bytes::new()).await?;
                let announced = answer.head.length;
                let most = usize::try_from(announced).unwrap_or(usize::MAX);
                let (_, content) = answer.collect(Some(most)).await?;
                Ok((announced, content))
            })
            .await?;
        let changed = content.len() as u64 != announced;
        if changed { Err(shrunk(&permit.path, announced, content.len() as u64)) } else { Ok(content) }
    }

    /// Writes many files, all under way at once. The results are in the order of the files.
    pub async fn write_all(&self, files: Vec<(Write, Bytes)>) -> Vec<Result<WriteOutput>> {
        stream::iter(files).map(|(request, content)| self.write(request, content)).buffered(AT_ONCE).collect().await
    }

    /// Fetches many files, all under way at once. The results are in the order of the requests.
    pub async fn download_all(&self, requests: Vec<Download>) -> Vec<Result<Bytes>> {
        stream::iter(requests).map(|request| self.download(request)).buffered(AT_ONCE).collect().await
    }
}

pub(crate) fn shrunk(path: &RawPath, announced: u64, came: u64) -> Error {
    let message = format!("the file shrank while it was read: {came} of {announced} bytes arrived; try again");
    Error::Operation(podbay_proto::Error::at(podbay_proto::ErrorCode::Conflict, path, message))
}
