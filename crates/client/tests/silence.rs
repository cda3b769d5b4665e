//! A podbayd that is connected, answers every PING, and nothing else: no operation waits for it without end.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use podbay_client::files::{Delete, Edit, Glob, Grep, Ls, Mkdir, Move, Stat, Tree};
use podbay_client::{Error, ExecId, Result, Sandbox, UnixChannel};
use podbay_proto::body::{MessageBody, Payload};
use podbay_proto::message::encode_head;
use podbay_proto::session::BULK;
use tokio::io::AsyncReadExt;
use tokio::net::UnixListener;
use tokio::time::Instant;

/// After what podbayd falls silent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    /// It doesn't say who it is.
    Connecting,
    /// It says who it is.
    Hello,
    /// It announces a mebibyte.
    Head,
    /// It announces a mebibyte and sends a byte every 20 seconds.
    Trickle,
}

async fn silent(after: After) -> (tempfile::TempDir, Sandbox) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| async move {
                let answer = answer(after, request.uri().path());
                // The request's body is held and not read.
                let answer = match answer {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                };
                drop(request);
                std::io::Result::Ok(Response::new(answer))
            });
            tokio::spawn(async move {
                // A connection for large transfers begins with a byte of its own.
                let (mut read, write) = stream.into_split();
                let first = read.read_u8().await.unwrap();
                let prefix: &[u8] = if first == BULK { &[] } else { b"P" };
                let stream = tokio::io::join(prefix.chain(read), write);
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                server.serve_connection(TokioIo::new(stream), service).await
            });
        }
    });
    (dir, Sandbox::new(UnixChannel::new(socket)))
}

fn answer(after: After, path: &str) -> Option<MessageBody> {
    if path.ends_with("/hello") && after != After::Connecting {
        let welcome = r#"{"version":{"major":1,"minor":0},"build":"","instance":"i","workdir":"/","state":"/s"}"#;
        let value: serde_json::Value = serde_json::from_str(welcome).unwrap();
        return Some(MessageBody::new(encode_head(&value).unwrap(), Payload::Bytes(Bytes::new())));
    }
    if after == After::Connecting || after == After::Hello {
        return None;
    }
    let head = serde_json::json!({
        "path": "/a", "size": 1 << 20, "start": 0, "length": 1 << 20, "mode": 0o644, "modified": {"secs": 0, "nanos": 0},
        "encoding": "binary", "kind": "file",
    });
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        while after == After::Trickle && sender.send(Ok(Bytes::from_static(b"x"))).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        sender.closed().await;
    });
    Some(MessageBody::new(encode_head(&head).unwrap(), Payload::Stream(receiver)))
}

type Attempt<'a> = (&'static str, u64, Pin<Box<dyn Future<Output = Result<()>> + 'a>>);

/// What is wrong with how an attempt ended; it may take so many seconds.
async fn ends(attempt: Attempt<'_>) {
    let (what, most, work) = attempt;
    let begun = Instant::now();
    let result = tokio::time::timeout(Duration::from_secs(7200), work).await;
    let result = result.unwrap_or_else(|_| panic!("{what} hangs"));
    assert!(matches!(result, Err(Error::NoAnswer { .. })), "{what}: {result:?}");
    assert!(begun.elapsed() <= Duration::from_secs(most + 1), "{what} took {:?}", begun.elapsed());
}

macro_rules! attempts {
    ($($what:literal within $most:literal: $work:expr;)+) => {
        vec![$(($what, $most, Box::pin(async { $work.await.map(drop) }) as Pin<Box<dyn Future<Output = Result<()>>>>)),+]
    };
}

/// Each of these waited forever: keep-alive sees a living connection, because hyper answers PINGs by itself.
#[tokio::test(start_paused = true)]
async fn no_operation_waits_for_ever() {
    let (_dir, sandbox) = silent(After::Hello).await;
    let id = ExecId::new("a").unwrap();
    let large = Bytes::from(vec![b'x'; 8 << 20]);
    let attempts: Vec<Attempt<'_>> = attempts![
        "read" within 240: sandbox.read("a");
        "write" within 240: sandbox.write("a", "content");
        // More than all windows: what isn't taken isn't progress.
        "a large write" within 260: sandbox.write("a", large.clone());
        "edit" within 240: sandbox.edit(Edit::in_file("a"), "x", "y");
        "ls" within 240: sandbox.ls(Ls::default());
        "stat" within 240: sandbox.stat(Stat::new("a"));
        "glob" within 300: sandbox.glob(Glob::new("*"));
        "grep" within 300: sandbox.grep(Grep::new("x"));
        "tree" within 300: sandbox.tree(Tree::default());
        "mkdir" within 240: sandbox.mkdir(Mkdir::new("a"));
        "delete" within 1800: sandbox.delete(Delete::new("a"));
        "move" within 1800: sandbox.mv(Move::new("a", "b"));
        "download" within 240: sandbox.download("a");
        "start" within 240: sandbox.start("true");
        "status" within 240: sandbox.status(&id);
        "commands" within 240: sandbox.commands(false);
        "signal" within 240: sandbox.signal(&id, 15);
        "attach" within 240: sandbox.attach(&id, 0);
        "protection" within 240: sandbox.protection();
    ];
    for attempt in attempts {
        ends(attempt).await;
    }
}

#[tokio::test(start_paused = true)]
async fn content_that_stops_or_trickles_is_not_waited_for() {
    for after in [After::Head, After::Trickle] {
        let (_dir, sandbox) = silent(after).await;
        let attempts: Vec<Attempt<'_>> = attempts![
            "read" within 60: sandbox.read("a");
            "download" within 60: sandbox.download("a");
        ];
        for attempt in attempts {
            ends(attempt).await;
        }
    }
}

/// Callers that wait for one connection learn together that nobody is there, not one after the other.
#[tokio::test(start_paused = true)]
async fn a_podbayd_that_never_says_who_it_is_holds_nobody() {
    let (_dir, sandbox) = silent(After::Connecting).await;
    let begun = Instant::now();
    let all = futures_util::future::join_all((0..50).map(|_| sandbox.stat(Stat::new("a")))).await;
    assert!(all.iter().all(|one| matches!(one, Err(Error::NoAnswer { .. }))), "{:?}", all[0]);
    assert!(begun.elapsed() < Duration::from_secs(61), "{:?}", begun.elapsed());
}
