//! The operations on commands.

use std::io;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use podbay_proto::body::Payload;
use podbay_proto::exec::{
    Attach, Attached, Command, ExecId, Info, Input, InputTaken, List, Run, RunOutput, Signal, Signalled, Start, Status,
    Stream,
};
use podbay_proto::record::{self, Record, RecordReader};
use podbay_proto::{Error, ErrorCode, Result};
use tokio::sync::mpsc;

use super::Daemon;
use super::blocking::blocking;
use super::reply::Reply;
use crate::exec_registry::{ExecRegistry, Found, ShimClient, Watched};
use crate::exec_store::collect::collect;
use crate::exec_store::log::{CHUNK, Cursor, Piece};
use crate::shim_protocol::{MAX_INPUT, Request};

/// How long a shim that has hung up may take to report the end of its command.
const ENDING: std::time::Duration = std::time::Duration::from_millis(100);

type Pieces = mpsc::Sender<io::Result<Bytes>>;

/// Starts a command and describes it.
pub async fn start(daemon: Arc<Daemon>, request: Start) -> Result<Reply> {
    let (found, _) = daemon.execs.start(&request.id, request.command).await?;
    Reply::new(&describe(&daemon.execs, found).await)
}

/// Describes a command.
pub async fn status(daemon: Arc<Daemon>, request: Status) -> Result<Reply> {
    let found = daemon.execs.find(&request.id).await?;
    Reply::new(&describe(&daemon.execs, found).await)
}

/// Describes all commands.
pub async fn list(daemon: Arc<Daemon>, request: List) -> Result<Reply> {
    Reply::new(&daemon.execs.list(request.running).await?)
}

/// What is known of a command now.
pub(super) async fn describe(execs: &Arc<ExecRegistry>, found: Found) -> Info {
    match found {
        Found::Ended(info) => info,
        Found::Live(watched) => execs.status(&watched).await,
    }
}

/// Starts a command or finds it, and answers with its output once it has ended.
pub async fn run(daemon: Arc<Daemon>, request: Run) -> Result<Reply> {
    let execs = &daemon.execs;
    let (found, _) = start_or_find(execs, &request.id, request.command).await?;
    let info = match found {
        Found::Ended(info) => info,
        Found::Live(watched) => execs.info(&watched, Some(watched.end().await)),
    };
    let mut log = execs.log(&request.id)?;
    // Output that couldn't be written, on a full disk, counts as left out.
    log.extend_to(info.output_bytes);
    let (end, cap) = (info.output_bytes, request.output_cap);
    let read = move || collect(&log, end, cap);
    // Reading a small result is faster than waking another thread.
    let collected = if end.min(cap) <= 64 << 10 { read() } else { blocking(read).await? };
    let collected =
        collected.map_err(|error| Error::new(ErrorCode::Io, format!("can't read the command's log: {error}")))?;
    let head = RunOutput { info, runs: collected.runs, cut: collected.cut };
    Reply::with_payload(&head, Payload::Bytes(collected.bytes))
}

async fn start_or_find(execs: &Arc<ExecRegistry>, id: &ExecId, command: Option<Command>) -> Result<(Found, bool)> {
    match command {
        Some(command) => execs.start(id, command).await,
        None => execs.find(id).await.map(|found| (found, false)),
    }
}

/// Starts a command or finds it, and streams its output.
pub async fn attach(daemon: Arc<Daemon>, request: Attach) -> Result<Reply> {
    let execs = daemon.execs.clone();
    let (found, started) = start_or_find(&execs, &request.id, request.command).await?;
    // Two pieces in flight keep both sides busy; more would only take memory.
    let (sender, receiver) = mpsc::channel(2);
    tokio::spawn(async move {
        if let Err(error) = follow(&execs, &request.id, found, request.offset, &sender).await {
            // The client attaches again and asks for what it missed.
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
            if let Ok(shim) = ShimClient::open(&watched).await
                && let Followed::ToTheEnd = follow_shim(execs, &watched, shim, &mut offset, pieces).await?
            {
                return Ok(());
            }
            // The shim is gone or can't be reached: the rest follows once the command has ended.
            tokio::select! {
                end = watched.end() => execs.info(&watched, Some(end)),
                () = pieces.closed() => return Ok(()),
            }
        }
    };
    // The shim is gone, and its output is in the files.
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
    mut shim: ShimClient,
    offset: &mut u64,
    pieces: &Pieces,
) -> io::Result<Followed> {
    if shim.send(&Request::Attach { offset: *offset }, &[]).await.is_err() {
        return Ok(Followed::ShimGone);
    }
    let mut reader = RecordReader::default();
    loop {
        // Output is passed on as it came, in whole records: should the shim die, the rest comes from its files, from
        // this offset on.
        let (output, span) = reader.take_output().map_err(io::Error::other)?;
        *offset = offset.saturating_add(span);
        if !output.is_empty() && pieces.send(Ok(output)).await.is_err() {
            return Ok(Followed::ToTheEnd);
        }
        if let Some(Record::End(info)) = reader.next_record().map_err(io::Error::other)? {
            // The shim says how the command ended and what it left; podbayd knows better which command it is.
            let Info { command, started_ms, id, log, .. } = execs.info(watched, None);
            let info = Info { command, started_ms, id, log, ..*info };
            let end = record::encode_end(&info).map_err(io::Error::other)?;
            let _ = pieces.send(Ok(end.into())).await;
            return Ok(Followed::ToTheEnd);
        }
        tokio::select! {
            more = shim.fill(&mut reader) => {
                if !more {
                    return Ok(Followed::ShimGone);
                }
            }
            // Nobody reads any more. Closing the connection frees the command from waiting for a reader.
            () = pieces.closed() => return Ok(Followed::ToTheEnd),
        }
    }
}

fn encode_output(stream: Stream, data: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(record::HEADER + data.len());
    bytes.put_slice(&record::output_header(stream, data.len()));
    bytes.put_slice(data);
    bytes.freeze()
}

/// Why a shim refused input: the command has ended, or earlier bytes are missing.
async fn refused(execs: &Arc<ExecRegistry>, request: &Input) -> Result<InputTaken> {
    let ended = match execs.find(&request.id).await? {
        Found::Ended(info) => Some(info.input_bytes),
        // The shim reports the end before it exits, and its socket still accepts connections until then.
        Found::Live(watched) => match tokio::time::timeout(ENDING, watched.end()).await {
            Ok((outcome, _)) => Some(outcome.input_bytes),
            Err(_) => None,
        },
    };
    if let Some(total) = ended {
        return Ok(InputTaken { total, closed: true });
    }
    let message =
        format!("command {}: input at offset {} was refused: earlier bytes are missing", request.id, request.offset);
    Err(Error::new(ErrorCode::InvalidArgument, message))
}

/// Writes to a command's standard input.
pub async fn input(daemon: Arc<Daemon>, request: Input, data: Bytes) -> Result<Reply> {
    let execs = &daemon.execs;
    if data.len() > MAX_INPUT {
        let message = format!("{} bytes of input in one request: send at most {MAX_INPUT} at a time", data.len());
        return Err(Error::new(ErrorCode::TooLarge, message));
    }
    let taken = match execs.find(&request.id).await? {
        Found::Ended(info) => InputTaken { total: info.input_bytes, closed: true },
        Found::Live(watched) => {
            let ask = Request::Input { offset: request.offset, close: request.close, length: data.len() };
            let asked = async { ShimClient::open(&watched).await?.ask(&ask, &data).await };
            match asked.await {
                Ok(taken) => taken,
                Err(_) => refused(execs, &request).await?,
            }
        }
    };
    Reply::new(&taken)
}

/// Sends a signal to a command.
pub async fn signal(daemon: Arc<Daemon>, request: Signal) -> Result<Reply> {
    let execs = &daemon.execs;
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
