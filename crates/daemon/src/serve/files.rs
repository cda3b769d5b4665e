//! The operations on files: `fsops` on threads of their own, with contents streamed past it.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;
use podbay_fsops::{Cancel, Content, Files, Settings};
use podbay_proto::body::{Incoming, Payload};
use podbay_proto::files::{Delete, Download, Edit, Glob, Grep, Ls, Mkdir, Move, Read, Stat, Tree, Write};
use podbay_proto::layout::{ARTEFACT_DIR, ARTEFACT_PATHS};
use podbay_proto::message::decode_head;
use podbay_proto::{Error, ErrorCode, Operation, Result};
use serde::Serialize;
use tokio::sync::mpsc;

use super::Daemon;
use super::execs::blocking;
use super::inline::{brief, brief_if_small};
use super::reply::Reply;
use super::routes::once;

/// Contents up to this size are kept in memory on their way.
const SMALL: usize = 256 << 10;

/// The most that `edit` takes: it keeps the file and both texts in memory.
const MAX_EDIT: usize = 256 << 20;

/// The file operations of a sandbox. `elsewhere` are paths that stand for others; where there are any, nothing of the
/// sandbox lies at the file system's root.
pub fn new(state: &Path, workdir: &Path, elsewhere: Vec<(PathBuf, PathBuf)>) -> Files {
    let confined = !elsewhere.is_empty();
    let artefacts =
        ARTEFACT_PATHS.iter().map(PathBuf::from).filter(|artefact| confined || !can_write(artefact)).filter_map(
            |artefact| {
                let elsewhere = state.join(ARTEFACT_DIR).join(artefact.strip_prefix("/").ok()?);
                // Where not even this can be made, writing says why.
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

/// Serves an operation on files, if it is one.
pub async fn serve<B>(
    daemon: &Arc<Daemon>,
    name: &str,
    id: Option<String>,
    mut body: Incoming<B>,
) -> Option<Result<Reply>>
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: std::fmt::Display,
{
    let files = daemon.files.clone();
    let head = body.head.clone();
    Some(match name {
        Read::NAME => with(&head, |request| read(daemon, files, request)).await,
        Ls::NAME => with(&head, |request| search(move |cancel| files.ls(&request, cancel))).await,
        Stat::NAME => with(&head, |request| simple(daemon.clone(), move || files.stat(&request))).await,
        Glob::NAME => with(&head, |request| search(move |cancel| files.glob(&request, cancel))).await,
        Grep::NAME => with(&head, |request| search(move |cancel| files.grep(&request, cancel))).await,
        Tree::NAME => with(&head, |request| search(move |cancel| files.tree(&request, cancel))).await,
        Download::NAME => with(&head, |request| download(files, request)).await,
        Write::NAME => {
            with(&head, |request| changed(daemon, name, id, write(daemon.clone(), files, request, body))).await
        }
        Edit::NAME => {
            let own = daemon.clone();
            let edit = async move |request: Edit| {
                let payload = body.collect(MAX_EDIT).await?;
                let (path, scope) = (request.path.clone(), request.scope.clone());
                let edit = move || files.edit(&request, &payload);
                Reply::new(&brief_if_small(&own, &path, &scope, edit).await??)
            };
            with(&head, |request| changed(daemon, name, id, edit(request))).await
        }
        Delete::NAME => {
            with(&head, |request| changed(daemon, name, id, lengthy(move || files.delete(&request, &Cancel::new()))))
                .await
        }
        Mkdir::NAME => {
            with(&head, |request| changed(daemon, name, id, simple(daemon.clone(), move || files.mkdir(&request))))
                .await
        }
        Move::NAME => with(&head, |request| changed(daemon, name, id, lengthy(move || files.relocate(&request)))).await,
        _ => return None,
    })
}

async fn with<O, F>(head: &[u8], serve: impl FnOnce(O) -> F) -> Result<Reply>
where
    O: Operation,
    F: Future<Output = Result<Reply>>,
{
    serve(decode_head(head)?).await
}

async fn changed(
    daemon: &Arc<Daemon>,
    name: &str,
    id: Option<String>,
    serve: impl Future<Output = Result<Reply>> + Send + 'static,
) -> Result<Reply> {
    Ok(once(daemon, name, id, serve).await)
}

/// What takes no longer for one file than for another.
async fn simple<T>(daemon: Arc<Daemon>, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Reply>
where
    T: Serialize + Send + 'static,
{
    Reply::new(&brief(&daemon, work).await??)
}

/// What may concern a whole tree.
async fn lengthy<T>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Reply>
where
    T: Serialize + Send + 'static,
{
    Reply::new(&blocking(work).await??)
}

/// A search ends soon after its caller has gone.
async fn search<T: Serialize + 'static>(work: impl FnOnce(&Cancel) -> Result<T> + Send + 'static) -> Result<Reply> {
    struct CancelOnDrop(Cancel);
    impl Drop for CancelOnDrop {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }
    let guard = CancelOnDrop(Cancel::new());
    let cancel = guard.0.clone();
    // Encoding ten thousand matches takes its time too.
    blocking(move || work(&cancel).and_then(|output| Reply::new(&output))).await?
}

async fn read(daemon: &Daemon, files: Arc<Files>, request: Read) -> Result<Reply> {
    let (path, scope) = (request.path.clone(), request.scope.clone());
    let (output, content) = brief_if_small(daemon, &path, &scope, move || files.read(&request)).await??;
    let payload = match content {
        Content::Bytes(bytes) => Payload::Bytes(bytes.into()),
        Content::File(file) => stream(file),
    };
    Reply::with_payload(&output, payload)
}

async fn download(files: Arc<Files>, request: Download) -> Result<Reply> {
    let (output, file, small) = blocking(move || {
        let (output, mut file) = files.open_download(&request)?;
        let mut small = Vec::new();
        if output.length <= SMALL as u64 {
            file.read_to_end(&mut small).map_err(|error| Error::at(ErrorCode::Io, &request.path, error))?;
        }
        Result::Ok((output, file, small))
    })
    .await??;
    let payload = if output.length <= SMALL as u64 { Payload::Bytes(small.into()) } else { stream(file) };
    Reply::with_payload(&output, payload)
}

/// Reads a file on a thread of its own, one piece ahead of the connection.
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

async fn write<B>(daemon: Arc<Daemon>, files: Arc<Files>, request: Write, mut body: Incoming<B>) -> Result<Reply>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut first = Vec::new();
    let mut size = 0;
    while let Some(piece) = body.next().await? {
        size += piece.len();
        first.push(piece);
        if size >= SMALL {
            return write_stream(files, request, first, body).await;
        }
    }
    simple(daemon, move || {
        let mut pending = files.start_write(&request)?;
        first.iter().try_for_each(|piece| pending.write(piece))?;
        pending.commit()
    })
    .await
}

/// Writes on a thread of its own while more arrives. What doesn't arrive to its end leaves nothing behind.
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
                // A writer that takes no more has failed and will say why.
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
    let written = writer.await.map_err(|_| Error::new(ErrorCode::Internal, "podbayd failed at writing a file"))?;
    match (written, cut) {
        (Ok(Some(output)), _) => Reply::new(&output),
        (Err(error), _) | (Ok(None), Some(error)) => Err(error),
        (Ok(None), None) => Err(Error::new(ErrorCode::Internal, "a file's end was lost on its way to the disk")),
    }
}
