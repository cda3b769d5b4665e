//! The operations on files. `fsops` does the work; contents are streamed past it.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;
use podbay_fsops::{Cancel, FileContent, Files, OpenFile, PendingEdit, Settings};
use podbay_proto::body::{Incoming, Payload};
use podbay_proto::files::{CommandOutput, Download, Edit, Read, Write, WriteOutput};
use podbay_proto::layout::{ARTEFACT_DIR, ARTEFACT_PATHS};
use podbay_proto::{Error, ErrorCode, Result};
use serde::Serialize;
use tokio::sync::mpsc;

use super::Daemon;
use super::blocking::blocking;
use super::execs::describe;
use super::reply::Reply;
use crate::exec_store::collect::collect;

/// Contents up to this size are read or collected in memory; larger ones are streamed.
const SMALL: usize = 256 << 10;

/// The most that may stand in the place of output that is left out.
const MAX_GAP: usize = 4 << 10;

/// The file operations of a sandbox. `elsewhere` are paths that stand for others; where there are any, the sandbox has no
/// root file system of its own.
pub fn new(state: &Path, workdir: &Path, elsewhere: Vec<(PathBuf, PathBuf)>) -> Files {
    let confined = !elsewhere.is_empty();
    let artefacts =
        ARTEFACT_PATHS.iter().map(PathBuf::from).filter(|artefact| confined || !can_write(artefact)).filter_map(
            |artefact| {
                let elsewhere = state.join(ARTEFACT_DIR).join(artefact.strip_prefix("/").ok()?);
                // If even this fails, writing there reports why.
                fs::create_dir_all(&elsewhere).ok()?;
                Some((artefact, elsewhere))
            },
        );
    let reroots = artefacts.chain(elsewhere).collect();
    Files::new(Settings { workdir: workdir.to_owned(), hidden: vec![state.to_owned()], reroots })
}

fn can_write(dir: &Path) -> bool {
    let writable = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    if dir.exists() { writable(dir) } else { writable(Path::new("/")) }
}

/// Work that takes about as long for one file as for another.
pub async fn quick<O, T>(daemon: Arc<Daemon>, request: O, work: fn(&Files, &O) -> Result<T>) -> Result<Reply>
where
    O: Send + 'static,
    T: Serialize + Send + 'static,
{
    let files = daemon.files.clone();
    Reply::new(&daemon.quick(move || work(&files, &request)).await?)
}

/// Work that may concern a whole tree.
pub async fn slow<O, T>(daemon: Arc<Daemon>, request: O, work: fn(&Files, &O) -> Result<T>) -> Result<Reply>
where
    O: Send + 'static,
    T: Serialize + Send + 'static,
{
    let files = daemon.files.clone();
    Reply::new(&blocking(move || work(&files, &request)).await??)
}

/// A search. It ends soon after its caller has gone.
pub async fn search<O, T>(daemon: Arc<Daemon>, request: O, work: fn(&Files, &O, &Cancel) -> Result<T>) -> Result<Reply>
where
    O: Send + 'static,
    T: Serialize + 'static,
{
    struct CancelOnDrop(Cancel);
    impl Drop for CancelOnDrop {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }
    let guard = CancelOnDrop(Cancel::new());
    let (files, cancel) = (daemon.files.clone(), guard.0.clone());
    // Encoding ten thousand matches takes its time too.
    blocking(move || work(&files, &request, &cancel).and_then(|output| Reply::new(&output))).await?
}

/// Reads a page of a file.
pub async fn read(daemon: Arc<Daemon>, request: Read) -> Result<Reply> {
    let (files, request) = (daemon.files.clone(), Arc::new(request));
    let wanted = request.clone();
    let (output, content) =
        daemon.open_then(move || files.open_read(&request), OpenFile::size, move |file| file.read(&wanted)).await?;
    Reply::with_payload(&output, payload(content))
}

fn payload(content: FileContent) -> Payload {
    match content {
        FileContent::Bytes(bytes) => Payload::Bytes(bytes.into()),
        FileContent::File(file) => stream(file),
    }
}

/// Sends a file, or a part of it.
pub async fn download(daemon: Arc<Daemon>, request: Download) -> Result<Reply> {
    let (files, path) = (daemon.files.clone(), request.path.clone());
    let opened = daemon.open_then(
        move || files.open_download(&request),
        // An empty part is read in no time.
        |(output, _)| output.length.max(1),
        move |(output, mut file)| {
            if output.length > SMALL as u64 {
                return Ok((output, FileContent::File(file)));
            }
            let mut bytes = Vec::with_capacity(output.length as usize + 1);
            file.read_to_end(&mut bytes).map_err(|error| Error::at(ErrorCode::Io, &path, error))?;
            Ok((output, FileContent::Bytes(bytes)))
        },
    );
    let (output, content) = opened.await?;
    Reply::with_payload(&output, payload(content))
}

/// Replaces text in a file.
pub async fn edit(daemon: Arc<Daemon>, request: Edit, payload: Bytes) -> Result<Reply> {
    let (files, request) = (daemon.files.clone(), Arc::new(request));
    let (wanted, texts) = (request.clone(), payload.clone());
    let edited = daemon.open_then(
        move || files.start_edit(&request, &payload),
        PendingEdit::size,
        move |edit| edit.finish(&wanted, &texts),
    );
    Reply::new(&edited.await?)
}

/// Reads a file on a thread of its own, a few pieces ahead of the connection.
fn stream(mut file: impl io::Read + Send + 'static) -> Payload {
    let (sender, receiver) = mpsc::channel(4);
    tokio::task::spawn_blocking(move || {
        loop {
            let mut piece = Vec::with_capacity(SMALL);
            match file.by_ref().take(SMALL as u64).read_to_end(&mut piece) {
                Ok(0) => return,
                Ok(_) if sender.blocking_send(Ok(piece.into())).is_err() => return,
                Ok(_) => {}
                Err(error) => return drop(sender.blocking_send(Err(error))),
            }
        }
    });
    Payload::Stream(receiver)
}

/// Writes a file.
pub async fn write<B>(daemon: Arc<Daemon>, request: Write, mut body: Incoming<B>) -> Result<Reply>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    if let Some(output) = request.output_of.clone() {
        return save_output(daemon, request, output, body.collect(MAX_GAP).await?).await;
    }
    let files = daemon.files.clone();
    let mut first = Vec::new();
    let mut size = 0;
    while let Some(piece) = body.next().await? {
        size += piece.len();
        first.push(piece);
        if size >= SMALL {
            return write_stream(files, request, first, body).await;
        }
    }
    let written = daemon.quick(move || {
        let mut pending = files.start_write(&request)?;
        first.iter().try_for_each(|piece| pending.write(piece))?;
        pending.commit()
    });
    Reply::new(&written.await?)
}

/// Writes a command's output to a file, with `gap` in the place of what is left out.
async fn save_output(daemon: Arc<Daemon>, request: Write, output: CommandOutput, gap: Bytes) -> Result<Reply> {
    let found = daemon.execs.find(&output.id).await?;
    let end = describe(&daemon.execs, found).await.output_bytes;
    let mut log = daemon.execs.log(&output.id)?;
    // Output that couldn't be written, on a full disk, counts as left out.
    log.extend_to(end);
    let files = daemon.files.clone();
    let save = move || -> Result<WriteOutput> {
        let collected = collect(&log, end, output.cap)
            .map_err(|error| Error::new(ErrorCode::Io, format!("can't read the command's log: {error}")))?;
        let bytes = collected.bytes;
        let (first, between, last) = match collected.cut {
            Some(cut) => (bytes.slice(..cut.at as usize), gap, bytes.slice(cut.at as usize..)),
            None => (bytes, Bytes::new(), Bytes::new()),
        };
        let pieces = [first, between, last];
        let length = Some(pieces.iter().map(|piece| piece.len() as u64).sum());
        let mut pending = files.start_write(&Write { length, ..request })?;
        pieces.iter().try_for_each(|piece| pending.write(piece))?;
        let breaks = pieces.iter().flatten().filter(|byte| **byte == b'\n').count();
        Ok(WriteOutput { line_breaks: Some(breaks as u64), ..pending.commit()? })
    };
    Reply::new(&blocking(save).await??)
}

/// Writes on a thread of its own while more arrives. An upload that is cut off leaves nothing behind.
async fn write_stream<B>(files: Arc<Files>, request: Write, first: Vec<Bytes>, mut body: Incoming<B>) -> Result<Reply>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let (sender, mut receiver) = mpsc::channel::<Option<Bytes>>(64);
    let writer = tokio::task::spawn_blocking(move || {
        let mut pending = files.start_write(&request)?;
        first.iter().try_for_each(|piece| pending.write(piece))?;
        loop {
            match receiver.blocking_recv() {
                Some(Some(piece)) => pending.write(&piece)?,
                Some(None) => return pending.commit().map(Some),
                None => return Ok(None),
            }
        }
    });
    let cut = loop {
        match body.next().await {
            Ok(Some(piece)) => {
                // A writer that takes no more has failed, and returns why.
                if sender.send(Some(piece)).await.is_err() {
                    break None;
                }
            }
            Ok(None) => {
                let _ = sender.send(None).await;
                break None;
            }
            Err(error) => break Some(error),
        }
    };
    drop(sender);
    let written = writer
        .await
        .map_err(|_| Error::new(ErrorCode::Internal, "podbayd failed while writing a file; please report this bug"))?;
    match (written, cut) {
        (Ok(Some(output)), _) => Reply::new(&output),
        (Err(error), _) | (Ok(None), Some(error)) => Err(error),
        (Ok(None), None) => {
            Err(Error::new(ErrorCode::Internal, "podbayd lost the end of an upload; please report this bug"))
        }
    }
}
