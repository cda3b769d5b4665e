//! The caller's own deadline: neither a podbayd that is stopped nor one that was tampered with holds a caller forever.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use podbay_client::{Command, Error, Sandbox};
use podbay_proto::body::{MessageBody, Payload};
use podbay_proto::exec::Stream;
use podbay_proto::message::encode_head;
use podbay_proto::record::output_header;
use support::Daemon;
use tokio::time::Instant;

fn brief(line: &str) -> Command {
    Command { timeout_ms: 700, grace_ms: 200, ..Command::shell(line) }
}

fn is_late<T: std::fmt::Debug>(what: &str, result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::DeadlineExceeded { .. })), "{what}: {result:?}");
}

fn signal(name: &str, pid: i32) {
    assert!(std::process::Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// Whoever could stop podbayd hung the caller, whose time-out only podbayd enforced.
#[tokio::test]
async fn a_stopped_podbayd_holds_nobody() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    assert!(sandbox.run("true").await.unwrap().success());
    let line = "echo before; sleep 30";
    let mut streamed = sandbox.spawn(brief(line)).await.unwrap();
    streamed.next().await.unwrap();
    let begun = Instant::now();
    let late = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        signal("-STOP", daemon.pid());
    };
    let (_, run, fed, streamed, new) = tokio::join!(
        late,
        sandbox.run(brief(line)),
        sandbox.run_with_input(brief("cat; sleep 30"), "input", 1 << 20),
        streamed.wait(),
        async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            sandbox.run(brief("true")).await
        }
    );
    // Time-out, grace period, slack, and what a unix socket is given to be reached.
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    is_late("a command that runs", run);
    is_late("a command with input", fed);
    is_late("a command that is streamed", streamed);
    is_late("a command that is started meanwhile", new);
    signal("-CONT", daemon.pid());
    assert_eq!(sandbox.run("echo well").await.unwrap().text(), "well\n");
}

/// What a podbayd that was tampered with says of every command, without ever coming to its end.
#[derive(Clone, Copy)]
enum Tale {
    /// A byte of output every nine seconds.
    Trickle,
    /// Output as fast as it is taken.
    Flood,
    /// The beginning of the answer, bit by bit.
    Stutter,
}

fn teller(tale: Tale) -> (tempfile::TempDir, Sandbox) {
    support::fake_podbayd(move |_| tell(tale))
}

fn tell(tale: Tale) -> Response<MessageBody> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        let size = if matches!(tale, Tale::Flood) { 64 << 10 } else { 1 };
        let record: Bytes = [&output_header(Stream::Stdout, size)[..], &vec![b'x'; size]].concat().into();
        let piece = if matches!(tale, Tale::Stutter) { Bytes::from_static(b"x") } else { record };
        while sender.send(Ok(piece.clone())).await.is_ok() {
            if !matches!(tale, Tale::Flood) {
                tokio::time::sleep(Duration::from_secs(9)).await;
            }
        }
    });
    let head = match tale {
        // As if a head of sixteen megabytes were on its way.
        Tale::Stutter => Bytes::from_static(b"\x01\0\0\0{"),
        _ => encode_head(&serde_json::json!({"started": true})).unwrap(),
    };
    Response::new(MessageBody::new(head, Payload::Stream(receiver)))
}

/// Each byte once bought a podbayd that trickles ten more seconds of its caller's time.
#[tokio::test(start_paused = true)]
async fn a_podbayd_that_trickles_holds_nobody() {
    for tale in [Tale::Trickle, Tale::Stutter] {
        let (_dir, sandbox) = teller(tale);
        let begun = Instant::now();
        let waited = async { sandbox.spawn(brief("true")).await?.wait().await };
        is_late("streamed", waited.await);
        assert!(begun.elapsed() < Duration::from_secs(340), "{:?}", begun.elapsed());
        let begun = Instant::now();
        let run = sandbox.run(brief("true")).await;
        assert!(run.is_err(), "{run:?}");
        let fed = sandbox.run_with_input(brief("true"), "input", 1 << 20).await;
        assert!(fed.is_err(), "{fed:?}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    }
}

/// Output that never makes its caller wait has an end too.
#[tokio::test]
async fn a_podbayd_that_floods_holds_nobody() {
    let (_dir, sandbox) = teller(Tale::Flood);
    let mut exec = sandbox.spawn(Command { timeout_ms: 1, grace_ms: 1, ..Command::shell("true") }).await.unwrap();
    // Until the deadline the caller takes what there is; a caller that doesn't read keeps the flood waiting.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(14)).await;
    tokio::time::resume();
    let mut events = 0_u64;
    let error = loop {
        match exec.next().await {
            Ok(Some(_)) => events += 1,
            Ok(None) => panic!("it ended"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::DeadlineExceeded { .. }), "after {events} events: {error}");
}
