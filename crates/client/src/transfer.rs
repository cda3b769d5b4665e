//! Files and trees between this machine and a sandbox: streamed, of any size, beneath their target.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;

use bytes::Bytes;
use podbay_proto::RawPath;
use podbay_proto::body::Payload;
use podbay_proto::files::{Download, DownloadOutput, Write, WriteOutput};
use podbay_proto::session::BULK_FROM;
use tokio::sync::{mpsc, oneshot};

use crate::Sandbox;
use crate::connection::{Answer, Failure, Pace, Purpose};
use crate::error::{Error, Result};
use crate::file_operations::shrunk;
use crate::guard::{Content, Effect, Permit, SentOnce};
use crate::session::request_id;

/// How much is read from a file at once.
const PIECE: usize = 256 << 10;

/// The progress of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Files that were transferred.
    pub files: u64,
    /// Bytes that were transferred. Bytes that had to be sent again count again.
    pub bytes: u64,
    /// How many files there are, once that is known.
    pub total_files: Option<u64>,
    /// How many bytes there are, once that is known.
    pub total_bytes: Option<u64>,
}

/// Counts what a transfer has moved and reports it.
pub struct Meter<'a> {
    state: Mutex<Progress>,
    tell: &'a (dyn Fn(Progress) + Send + Sync),
}

impl std::fmt::Debug for Meter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("state", &self.state).finish_non_exhaustive()
    }
}

impl<'a> Meter<'a> {
    /// A meter that calls `tell` whenever something was transferred.
    pub fn new(tell: &'a (dyn Fn(Progress) + Send + Sync)) -> Self {
        Self { state: Mutex::default(), tell }
    }

    pub(crate) fn add(&self, change: impl FnOnce(&mut Progress)) {
        let progress = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut state);
            *state
        };
        (self.tell)(progress);
    }
}

impl Sandbox {
    /// Uploads a file of this machine.
    ///
    /// # Errors
    /// When it can't be read here or written there; then nothing has changed there.
    pub async fn upload_file(&self, local: &Path, request: impl Into<Write>, meter: &Meter<'_>) -> Result<WriteOutput> {
        let request = request.into();
        let file = File::open(local).map_err(Error::local(local))?;
        let size = file.metadata().map_err(Error::local(local))?.len();
        if size <= BULK_FROM {
            let content = tokio::task::spawn_blocking(move || read_whole(file, size)).await;
            let content = content.map_err(io::Error::from).flatten().map_err(Error::local(local))?;
            let length = content.len() as u64;
            let written = self.write_as("upload", request, content).await?;
            meter.add(|progress| (progress.files, progress.bytes) = (progress.files + 1, progress.bytes + length));
            return Ok(written);
        }
        drop(file);
        let request = Write { length: Some(size), ..request };
        let permit = Permit::new(self.session.guard(), "upload", request, Content::Stream(size))?;
        let written = self.stream_upload(&permit, local, size, meter).await;
        let written = permit.finish(written, |written| Effect::bytes(written.size))?;
        meter.add(|progress| progress.files += 1);
        Ok(written)
    }

    async fn stream_upload(
        &self,
        permit: &Permit<Write>,
        local: &Path,
        size: u64,
        meter: &Meter<'_>,
    ) -> Result<WriteOutput> {
        let id = &request_id();
        self.session
            .retry("write", true, Purpose::Bulk, |connection| async move {
                let file = File::open(local).map_err(|error| Failure::Final(Error::local(local)(error)))?;
                let (payload, counted, all_sent) = stream_file(file, size, permit.sent().map(|sent| sent.attempt()));
                let send = async { Ok(connection.send(permit, Some(id), payload).await?.head) };
                tokio::pin!(send);
                let written = count_while(&mut send, counted, meter).await?;
                // An answer to all of it is only possible when all of it was sent, so that this takes no time. If podbayd has
                // answered before, the thread has ended too.
                let _ = all_sent.await;
                Ok(written)
            })
            .await
    }

    /// Downloads a file to this machine. It appears under its name once it is complete.
    ///
    /// # Errors
    /// When it can't be read there or written here; then nothing is left here.
    pub async fn download_file(
        &self,
        request: impl Into<Download>,
        local: &Path,
        meter: &Meter<'_>,
    ) -> Result<DownloadOutput> {
        let request = request.into();
        let temporary = temporary_beside(local);
        let result = async {
            let file = File::create_new(&temporary).map_err(Error::local(&temporary))?;
            let output = self.download_into(request, file, meter).await?;
            std::fs::rename(&temporary, local).map_err(Error::local(local))?;
            Ok(output)
        }
        .await;
        if result.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        result
    }

    /// Fetches a file into an open one, going on where a broken connection left off.
    pub(crate) async fn download_into(
        &self,
        request: Download,
        file: File,
        meter: &Meter<'_>,
    ) -> Result<DownloadOutput> {
        let mut permit = self.session.permit(request, Content::Nothing)?;
        let result = self.receive_file(&mut permit, file, meter).await;
        permit.finish(result, |output| Effect::bytes(output.length))
    }

    async fn receive_file(
        &self,
        permit: &mut Permit<Download>,
        file: File,
        meter: &Meter<'_>,
    ) -> Result<DownloadOutput> {
        let (start, length) = (permit.start, permit.length);
        let mut patience = self.session.patience("download");
        let mut first: Option<DownloadOutput> = None;
        let mut file = file;
        let mut received = 0;
        loop {
            let rest = permit.request_mut();
            rest.start = start + received;
            rest.length = length.map(|length| length.saturating_sub(received));
            let answer = self.session.open(permit, Purpose::Bulk).await?;
            let output = first.get_or_insert_with(|| answer.head.clone()).clone();
            if (answer.head.modified, answer.head.size) != (output.modified, output.size) {
                return Err(shrunk(&permit.path, output.length, received));
            }
            let before = received;
            let failure;
            (file, failure) = receive(answer, file, &mut received, output.length, meter).await?;
            match failure {
                None if received == output.length => {
                    meter.add(|progress| progress.files += 1);
                    return Ok(output);
                }
                None => return Err(shrunk(&permit.path, output.length, received)),
                Some(failure) => {
                    if received > before {
                        patience = self.session.patience("download");
                    }
                    patience.after(failure).await?;
                }
            }
        }
    }
}

/// Waits for an answer and reports how much of the request has been sent.
async fn count_while<T>(
    send: &mut (impl Future<Output = T> + Unpin),
    mut counted: mpsc::UnboundedReceiver<u64>,
    meter: &Meter<'_>,
) -> T {
    loop {
        tokio::select! {
            biased;
            answer = &mut *send => return answer,
            Some(bytes) = counted.recv() => meter.add(|progress| progress.bytes += bytes),
        }
    }
}

fn read_whole(file: File, size: u64) -> io::Result<Bytes> {
    let mut content = Vec::with_capacity(size as usize);
    // A file that grows meanwhile is sent as it was when it was opened, not without end.
    file.take(BULK_FROM).read_to_end(&mut content)?;
    Ok(content.into())
}

/// Reads a file on a thread of its own. How much was handed on comes by the second channel, and goes into `sent`. The third closes
/// at the end.
fn stream_file(
    file: File,
    size: u64,
    sent: Option<SentOnce>,
) -> (Payload, mpsc::UnboundedReceiver<u64>, oneshot::Receiver<()>) {
    let (sender, receiver) = mpsc::channel(4);
    let (count, counted) = mpsc::unbounded_channel();
    let (end, ended) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let _end: oneshot::Sender<()> = end;
        let mut file = file.take(size);
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            match file.by_ref().take(PIECE as u64).read_to_end(&mut piece) {
                Ok(0) => return,
                Ok(length) => {
                    let piece = Bytes::from(piece);
                    if sender.blocking_send(Ok(piece.clone())).is_err() {
                        return;
                    }
                    if let Some(sent) = &sent {
                        sent.add(&piece);
                    }
                    let _ = count.send(length as u64);
                }
                Err(error) => return drop(sender.blocking_send(Err(error))),
            }
        }
    });
    (Payload::Stream(receiver), counted, ended)
}

/// Writes an answer's payload to a file, on a thread of its own. Gives the file back, with what broke the connection.
async fn receive(
    mut answer: Answer<DownloadOutput>,
    file: File,
    received: &mut u64,
    length: u64,
    meter: &Meter<'_>,
) -> Result<(File, Option<Failure>)> {
    let (sender, mut pieces) = mpsc::channel::<Bytes>(32);
    let writer = tokio::task::spawn_blocking(move || {
        let mut file = file;
        while let Some(piece) = pieces.blocking_recv() {
            file.write_all(&piece)?;
        }
        io::Result::Ok(file)
    });
    let mut failure = None;
    let mut pace = Pace::default();
    loop {
        match pace.next(&mut answer.payload).await {
            Ok(Some(piece)) => {
                // More than was announced is nothing that podbayd would send.
                let room = usize::try_from(length - *received).unwrap_or(usize::MAX);
                let piece = piece.slice(..piece.len().min(room));
                if piece.is_empty() {
                    break;
                }
                let count = piece.len() as u64;
                if sender.send(piece).await.is_err() {
                    break;
                }
                *received += count;
                meter.add(|progress| progress.bytes += count);
            }
            Ok(None) => break,
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    drop(sender);
    let written = writer.await.map_err(io::Error::from).flatten();
    written.map(|file| (file, failure)).map_err(Error::local("the target"))
}

/// A name that nobody else uses, in the same directory, so that a rename makes it the file.
fn temporary_beside(local: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(local.file_name().unwrap_or_default());
    name.push(format!(".{:08x}", rand::random::<u32>()));
    local.with_file_name(name)
}

/// A path in the sandbox below a directory there.
pub(crate) fn join(dir: &RawPath, below: &RawPath) -> RawPath {
    let mut path = dir.as_bytes().to_vec();
    while path.len() > 1 && path.last() == Some(&b'/') {
        path.pop();
    }
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(below.as_bytes());
    path.into()
}
