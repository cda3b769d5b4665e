//! The operations on commands.

use std::io;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use podbay_proto::body::Payload;
use podbay_proto::exec::{
    Attach, Attached, Command, ExecId, Info, Input, InputTaken, Run, RunOutput, Signal, Signalled, Start, Status,
    Stream,
};
use podbay_proto::record::{self, Record, RecordReader};
use podbay_proto::{Error, ErrorCode, Result};
use tokio::sync::mpsc;

use super::reply::Reply;
use crate::exec_registry::{ExecRegistry, Found, ShimClient, Watched};
use crate::exec_store::collect::collect;
use crate::exec_store::log::{CHUNK, Cursor, Piece};
use crate::shim_protocol::{MAX_INPUT, Request};

/// How long a shim that has hung up may take to say that its command has ended.
const GOING: std::time::Duration = std::time::Duration::from_millis(100);

type Pieces = mpsc::Sender<io::Result<Bytes>>;

/// Starts a command and tells about it.
pub async fn start(execs: &Arc<ExecRegistry>, request: Start) -> Result<Reply> {
    let (found, _) = execs.start(&request.id, request.command).await?;
    Reply::new(&tell(execs, found).await)
}

/// Tells about a command.
pub async fn status(execs: &Arc<ExecRegistry>, request: Status) -> Result<Reply> {
    let found = execs.find(&request.id).await?;
    Reply::new(&tell(execs, found).await)
}

async fn tell(execs: &Arc<ExecRegistry>, found: Found) -> Info {
    match found {
        Found::Ended(info) => info,
        Found::Live(watched) => execs.status(&watched).await,
    }
}

/// Starts a command or finds it, and answers with its output once it has ended.
pub async fn run(execs: &Arc<ExecRegistry>, request: Run) -> Result<Reply> {
    let (found, _) = start_or_find(execs, &request.id, request.command).await?;
    let info = match found {
        Found::Ended(info) => info,
        Found::Live(watched) => execs.info(&watched, Some(watched.end().await)),
    };
    let mut log = execs.log(&request.id)?;
    // What couldn't be written, on a full disk, was printed all the same and counts as left out.
    log.extend_to(info.output_bytes);
    let (end, cap) = (info.output_bytes, request.output_cap);
    let read = move || collect(&log, end, cap);
    // A small result is read faster than another thread is woken.
    let collected = if end.min(cap) <= 64 << 10 { read() } else { blocking(read).await? };
    let collected =
        collected.map_err(|error| Error::new(ErrorCode::Io, format!("the command's log can't be read: {error}")))?;
    let head = RunOutput { info, runs: collected.runs, cut: collected.cut };
    Reply::with_payload(&head, Payload::Bytes(collected.bytes))
}

async fn start_or_find(execs: &Arc<ExecRegistry>, id: &ExecId, command: Option<Command>) -> Result<(Found, bool)> {
    match command {
        Some(command) => execs.start(id, command).await,
        None => execs.find(id).await.map(|found| (found, false)),
    }
}

/// Runs what blocks on a thread of its own.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Error::new(ErrorCode::Internal, "podbayd failed at an operation; please report this as a defect"))
}

/// Starts a command or finds it, and streams its output.
pub async fn attach(execs: Arc<ExecRegistry>, request: Attach) -> Result<Reply> {
    let (found, started) = start_or_find(&execs, &request.id, request.command).await?;
    // Two pieces under way keep both sides busy; more would only be memory.
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        if let Err(error) = follow(&execs, &request.id, found, request.offset, &sender).await {
            // The reader comes again and asks for what it missed.
            let _ = sender.send(Err(error)).await;
        }
    });
    Reply::with_payload(&Attached { started }, Payload::Stream(receiver))
}

async fn follow(execs: &ExecRegistry, id: &ExecId, found: Found, offset: u64, pieces: &Pieces) -> io::Result<()> {
    let mut offset = offset;
    let info = match found {
        Found::Ended(info) => info,
        Found::Live(watched) => {
            if let Ok(link) = ShimClient::open(&watched).await
                && let Followed::ToTheEnd = follow_shim(execs, &watched, link, &mut offset, pieces).await?
            {
                return Ok(());
            }
            // The shim has gone, or can't be reached: then the rest comes at the end.
            tokio::select! {
                end = watched.end() => execs.info(&watched, Some(end)),
                () = pieces.closed() => return Ok(()),
            }
        }
    };
    // The shim has gone, and what it left is in the files.
    let mut log = execs.log(id).map_err(io::Error::other)?;
    log.extend_to(info.output_bytes);
    let sender = pieces.clone();
    tokio::task::spawn_blocking(move || {
        let mut cursor = Cursor::at(offset);
        while let Some(piece) = log.read(&mut cursor, CHUNK)? {
            let bytes = match piece {
                Piece::Data(stream, data) => encode_output(stream, &data),
                Piece::Lost(count) => record::encode_lost(count).into(),
            };
            if sender.blocking_send(Ok(bytes)).is_err() {
                break;
            }
        }
        io::Result::Ok(())
    })
    .await??;
    let end = record::encode_end(&info).map_err(io::Error::other)?;
    let _ = pieces.send(Ok(end.into())).await;
    Ok(())
}

enum Followed {
    ToTheEnd,
    ShimGone,
}

async fn follow_shim(
    execs: &ExecRegistry,
    watched: &Watched,
    mut link: ShimClient,
    offset: &mut u64,
    pieces: &Pieces,
) -> io::Result<Followed> {
    if link.send(&Request::Attach { offset: *offset }, &[]).await.is_err() {
        return Ok(Followed::ShimGone);
    }
    let mut reader = RecordReader::default();
    let mut buffer = vec![0; 2 * CHUNK];
    loop {
        let next = tokio::select! {
            next = link.next_record(&mut reader, &mut buffer) => next?,
            // Nobody reads any more. Closing the link frees the command from waiting for a reader.
            () = pieces.closed() => return Ok(Followed::ToTheEnd),
        };
        let Some(record) = next else { return Ok(Followed::ShimGone) };
        *offset = offset.saturating_add(record.span());
        let (bytes, last) = match record {
            Record::Output(stream, data) => (encode_output(stream, &data), false),
            Record::Lost(count) => (record::encode_lost(count).into(), false),
            Record::End(info) => {
                // The shim's word counts for how the command ended and what it left, not for which command it is.
                let Info { command, started_ms, id, log, .. } = execs.info(watched, None);
                let info = Info { command, started_ms, id, log, ..*info };
                (record::encode_end(&info).map_err(io::Error::other)?.into(), true)
            }
        };
        if pieces.send(Ok(bytes)).await.is_err() || last {
            return Ok(Followed::ToTheEnd);
        }
    }
}

fn encode_output(stream: Stream, data: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(record::HEADER + data.len());
    bytes.put_slice(&record::output_header(stream, data.len()));
    bytes.put_slice(data);
    bytes.freeze()
}

/// Why a shim hung up on input: the command has ended, or bytes before it are missing.
async fn refused(execs: &Arc<ExecRegistry>, request: &Input) -> Result<InputTaken> {
    let ended = match execs.find(&request.id).await? {
        Found::Ended(info) => Some(info.input_bytes),
        // The shim tells of the end before it goes, and its socket can still be reached while it goes.
        Found::Live(watched) => match tokio::time::timeout(GOING, watched.end()).await {
            Ok((outcome, _)) => Some(outcome.input_bytes),
            Err(_) => None,
        },
    };
    if let Some(total) = ended {
        return Ok(InputTaken { total, closed: true });
    }
    let message =
        format!("command {}: input at offset {} was refused: bytes before it are missing", request.id, request.offset);
    Err(Error::new(ErrorCode::InvalidArgument, message))
}

/// Writes to a command's standard input.
pub async fn input(execs: &Arc<ExecRegistry>, request: Input, data: &[u8]) -> Result<Reply> {
    if data.len() > MAX_INPUT {
        let message = format!("{} bytes of input at once are too many: send at most {MAX_INPUT}", data.len());
        return Err(Error::new(ErrorCode::TooLarge, message));
    }
    let taken = match execs.find(&request.id).await? {
        Found::Ended(info) => InputTaken { total: info.input_bytes, closed: true },
        Found::Live(watched) => {
            let ask = Request::Input { offset: request.offset, close: request.close, length: data.len() };
            let asked = async { ShimClient::open(&watched).await?.ask(&ask, data).await };
            match asked.await {
                Ok(taken) => taken,
                Err(_) => refused(execs, &request).await?,
            }
        }
    };
    Reply::new(&taken)
}

/// Sends a signal to a command.
pub async fn signal(execs: &Arc<ExecRegistry>, request: Signal) -> Result<Reply> {
    let Some(signal) = rustix::process::Signal::from_named_raw(request.signal) else {
        let message = format!("there is no signal {}", request.signal);
        return Err(Error::new(ErrorCode::InvalidArgument, message));
    };
    let signalled = match execs.find(&request.id).await? {
        Found::Ended(_) => Signalled { processes: 0 },
        Found::Live(watched) => execs.signal(&watched, signal, request.target).await,
    };
    Reply::new(&signalled)
}
