//! An old client with today's podbayd, and today's client with an old podbayd: a sandbox may outlive the client that made it,
//! and a warm pod the release that filled the pool.
//!
//! `1.0.json` is a conversation with the first podbayd of protocol 1.0, as it went over the wire. It is never changed: within
//! a major version everything in it has to go on working. The next released protocol gets a file beside it, recorded by
//! `PODBAY_RECORD=1 cargo test -p podbay-client --test skew` from a file that has only the requests.
#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use podbay_proto::body::{Incoming, MessageBody, Payload};
use podbay_proto::message::{decode_head, encode_head};
use podbay_proto::record::{Record, RecordReader};
use podbay_proto::session::{Hello, Lifetime, REQUEST_ID};
use podbay_proto::{Error, Operation, exec, files};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use support::Daemon;

/// What stands for the test's directory in recordings.
const PLACE: &str = "/sandbox";

/// What differs from run to run, or between users. Of these only the type has to stay.
const VOLATILE: [&str; 18] = [
    "build",
    "duration_us",
    "gid",
    "idle_ms",
    "inode",
    "instance",
    "log",
    "message",
    "minor",
    "mode",
    "nanos",
    "peak_memory",
    "processes",
    "secs",
    "started_ms",
    "system_us",
    "uid",
    "user_us",
];

/// One request and its answer.
#[derive(Debug, Serialize, Deserialize)]
struct Exchange {
    op: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    request: Value,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    payload: String,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    answer: Value,
    /// The answer's payload. A stream of records, as `exec.attach` has it, is in hexadecimal digits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reply: String,
}

/// Reads a request with today's types and writes it again, and reads an answer.
struct Types {
    request: fn(&Value) -> podbay_proto::Result<Value>,
    answer: fn(&Value) -> podbay_proto::Result<()>,
}

fn types_of<O: Operation>() -> Types {
    fn bytes(value: &Value) -> Vec<u8> {
        serde_json::to_vec(value).unwrap()
    }
    Types {
        request: |value| Ok(serde_json::to_value(decode_head::<O>(&bytes(value))?).unwrap()),
        answer: |value| decode_head::<O::Output>(&bytes(value)).map(drop),
    }
}

fn types(op: &str) -> Types {
    macro_rules! find {
        ($($operation:ty),* $(,)?) => {
            match op {
                $(<$operation>::NAME => types_of::<$operation>(),)*
                other => panic!("{other:?} was an operation, and there is none of that name any more"),
            }
        };
    }
    find!(
        Hello,
        Lifetime,
        exec::Start,
        exec::Run,
        exec::Attach,
        exec::Status,
        exec::List,
        exec::Input,
        exec::Signal,
        files::Read,
        files::Write,
        files::Edit,
        files::Ls,
        files::Stat,
        files::Glob,
        files::Grep,
        files::Tree,
        files::Mkdir,
        files::Move,
        files::Download,
        files::Delete,
    )
}

fn recordings() -> Vec<(PathBuf, Vec<Exchange>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/skew");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
    files.map(|path| (path.clone(), serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())).collect()
}

async fn connect(daemon: &Daemon) -> SendRequest<MessageBody> {
    let stream = tokio::net::UnixStream::connect(daemon.socket()).await.unwrap();
    let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    sender
}

/// Asks today's podbayd what was asked then. What it answers, with the test's directory by its name in recordings.
async fn ask(sender: &mut SendRequest<MessageBody>, asked: &Exchange, place: &str) -> Exchange {
    let mut request = http::Request::post(format!("http://podbayd/v1/{}", asked.op));
    if let Some(id) = &asked.id {
        request = request.header(REQUEST_ID, id);
    }
    let head = encode_head(&asked.request).unwrap();
    let body = MessageBody::new(head, Payload::Bytes(Bytes::from(asked.payload.clone())));
    let response = sender.send_request(request.body(body).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let mut body = Incoming::read(response.into_body(), podbay_proto::message::MAX_ANSWER).await.unwrap();
    let reply = body.collect(1 << 20).await.unwrap();
    let answer = String::from_utf8(body.head.to_vec()).unwrap().replace(place, PLACE);
    let reply = match asked.op.as_str() {
        exec::Attach::NAME => reply.iter().map(|byte| format!("{byte:02x}")).collect(),
        _ => String::from_utf8(reply.to_vec()).unwrap(),
    };
    Exchange {
        op: asked.op.clone(),
        id: asked.id.clone(),
        request: asked.request.clone(),
        payload: asked.payload.clone(),
        status,
        answer: serde_json::from_str(&answer).unwrap(),
        reply,
    }
}

/// Whatever an old client finds in an answer has to be in today's, and mean the same. There may be more.
fn assert_has(new: &Value, old: &Value, place: &str) {
    let key = place.rsplit(['.', '[']).next().unwrap_or_default();
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, old) in old {
                let found =
                    new.get(key).unwrap_or_else(|| panic!("{place}.{key} was in the answer and isn't any more"));
                assert_has(found, old, &format!("{place}.{key}"));
            }
        }
        (Value::Array(old), Value::Array(new)) if !VOLATILE.contains(&key) => {
            assert_eq!(old.len(), new.len(), "{place}: {new:?}");
            for (at, (old, new)) in old.iter().zip(new).enumerate() {
                assert_has(new, old, &format!("{place}[{at}"));
            }
        }
        _ if VOLATILE.contains(&key) => {
            assert_eq!(std::mem::discriminant(old), std::mem::discriminant(new), "{place}: {old} was {new}");
        }
        _ => assert_eq!(old, new, "{place}"),
    }
}

/// The output in a stream of records, and the command's end.
fn records(hex: &str) -> (Vec<u8>, Option<String>) {
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let mut reader = RecordReader::default();
    reader.push(&bytes);
    let (mut output, mut end) = (Vec::new(), None);
    while let Some(record) = reader.next_record().unwrap() {
        match record {
            Record::Output(_, data) => output.extend_from_slice(&data),
            Record::Lost(bytes) => panic!("{bytes} bytes lost"),
            Record::End(info) => end = Some(format!("{:?}", std::mem::discriminant(&info.state))),
        }
    }
    (output, end)
}

#[tokio::test]
async fn an_old_client_is_served_by_todays_podbayd() {
    for (file, conversation) in recordings() {
        let daemon = Daemon::start();
        let place = daemon.dir.path().to_str().unwrap().to_owned();
        let mut sender = connect(&daemon).await;
        let mut recorded = Vec::new();
        for old in conversation {
            let new = ask(&mut sender, &old, &place).await;
            if std::env::var_os("PODBAY_RECORD").is_none() {
                assert_eq!(old.status, new.status, "{}: {}", old.op, new.answer);
                assert_has(&new.answer, &old.answer, &old.op);
                match old.op.as_str() {
                    exec::Attach::NAME => assert_eq!(records(&old.reply), records(&new.reply)),
                    op => assert_eq!(old.reply, new.reply, "{op}"),
                }
            }
            let request = (types(&new.op).request)(&new.request).unwrap();
            recorded.push(Exchange { request, ..new });
        }
        if std::env::var_os("PODBAY_RECORD").is_some() {
            std::fs::write(file, serde_json::to_string_pretty(&recorded).unwrap() + "\n").unwrap();
        }
    }
}

/// An old podbayd gets from today's client what it got then, and today's client understands what it answers.
#[test]
fn todays_client_talks_to_an_old_podbayd() {
    for (_, conversation) in recordings() {
        for old in conversation {
            let types = types(&old.op);
            // A setting that is new has to be left out of a request that doesn't use it.
            assert_eq!((types.request)(&old.request).unwrap(), old.request, "{} asks for something else now", old.op);
            let understood = match old.status {
                200 => (types.answer)(&old.answer),
                _ => decode_head::<Error>(&serde_json::to_vec(&old.answer).unwrap()).map(drop),
            };
            understood.unwrap_or_else(|error| panic!("{}: {error} in {}", old.op, old.answer));
            if old.op == exec::Attach::NAME {
                assert!(records(&old.reply).1.is_some());
            }
        }
    }
}

#[test]
fn every_operation_of_the_protocol_is_recorded() {
    for (file, conversation) in recordings() {
        for op in [
            "hello",
            "lifetime",
            "exec.start",
            "exec.run",
            "exec.attach",
            "exec.status",
            "exec.list",
            "exec.input",
            "exec.signal",
            "read",
            "write",
            "edit",
            "ls",
            "stat",
            "glob",
            "grep",
            "tree",
            "mkdir",
            "move",
            "download",
            "delete",
        ] {
            assert!(conversation.iter().any(|exchange| exchange.op == op), "{} has no {op}", file.display());
        }
    }
}
