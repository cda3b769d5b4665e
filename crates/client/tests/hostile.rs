//! Nonsense from either side: a typed error, never a hang, a panic or an answer that was never given.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use podbay_client::files::{Read, Stat};
use podbay_client::{Error, ErrorCode, RawPath, Sandbox};
use podbay_proto::body::{Incoming, MessageBody, Payload};
use podbay_proto::message::{decode_head, encode_head};
use support::Daemon;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Sends one request as it stands and gives the answer's status and head.
async fn raw(daemon: &Daemon, method: &str, path: &str, body: MessageBody) -> (u16, Bytes) {
    let stream = UnixStream::connect(daemon.socket()).await.unwrap();
    let (mut sender, driver) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let request = Request::builder().method(method).uri(format!("http://podbayd{path}")).body(body).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    (status, Incoming::read(response.into_body(), 1 << 20).await.unwrap().head)
}

fn body(bytes: &'static [u8]) -> MessageBody {
    MessageBody::new(Bytes::from_static(bytes), Payload::Bytes(Bytes::new()))
}

#[tokio::test]
async fn requests_that_make_no_sense_get_an_error_that_says_so() {
    let daemon = Daemon::start();
    let cases: [(&str, &str, &'static [u8], u16, ErrorCode); 9] = [
        ("POST", "/v1/read", b"\0\0\0\x02{}", 400, ErrorCode::BadMessage),
        ("POST", "/v1/read", b"\0\0\0\x02{", 400, ErrorCode::BadMessage),
        ("POST", "/v1/read", b"\xff\xff\xff\xff", 400, ErrorCode::BadMessage),
        ("POST", "/v1/read", b"", 400, ErrorCode::BadMessage),
        ("POST", "/v1/exec.start", b"\0\0\0\x1d{\"id\":\"../x\",\"command\":\"a\"}  ", 400, ErrorCode::BadMessage),
        ("POST", "/v1/no.such", b"\0\0\0\x02{}", 404, ErrorCode::UnknownOperation),
        ("GET", "/v1/read", b"\0\0\0\x02{}", 404, ErrorCode::UnknownOperation),
        ("POST", "/../etc", b"\0\0\0\x02{}", 404, ErrorCode::UnknownOperation),
        ("POST", "/v9/hello", b"\0\0\0\x02{}", 426, ErrorCode::VersionMismatch),
    ];
    for (method, path, bytes, status, code) in cases {
        let (answered, head) = raw(&daemon, method, path, body(bytes)).await;
        let error: podbay_proto::Error = decode_head(&head).unwrap();
        assert_eq!((answered, error.code), (status, code), "{method} {path}: {error}");
    }
    let (_, head) = raw(&daemon, "POST", "/v9/hello", body(b"")).await;
    let error: podbay_proto::Error = decode_head(&head).unwrap();
    assert!(error.message.contains("update podbayd in the sandbox"), "{error}");
    let (_, head) = raw(&daemon, "POST", "/v0/hello", body(b"")).await;
    let error: podbay_proto::Error = decode_head(&head).unwrap();
    assert!(error.message.contains("update the client"), "{error}");
}

#[tokio::test]
async fn bytes_that_are_no_http_harm_nobody() {
    let daemon = Daemon::start();
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"B",
        b"\0\0\0",
        &[0xff; 4096],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let mut stream = UnixStream::connect(daemon.socket()).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let end = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
        assert!(end.is_ok(), "the connection stays open after {garbage:?}");
    }
    assert_eq!(daemon.sandbox().run("echo fine").await.unwrap().text(), "fine\n");
}

#[tokio::test]
async fn paths_that_cannot_be_are_refused_over_the_wire() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let long = "x".repeat(5_000);
    for (path, codes) in [
        ("", &[ErrorCode::InvalidPath][..]),
        ("a\0b", &[ErrorCode::InvalidPath]),
        (long.as_str(), &[ErrorCode::InvalidPath]),
        ("no/such", &[ErrorCode::NotFound]),
    ] {
        let error = sandbox.stat(&Stat::new(path)).await.unwrap_err();
        assert!(codes.contains(&error.code().unwrap()), "{path:.20}: {error}");
    }
    let odd = RawPath::from(&b"caf\xe9 \n"[..]);
    sandbox.write(&podbay_client::files::Write::new(odd.clone()), "x").await.unwrap();
    assert_eq!(sandbox.stat(&Stat::new(odd.clone())).await.unwrap().entry.size, 1);
    let listed = sandbox.ls(&podbay_client::files::Ls::new(".")).await.unwrap();
    assert!(listed.entries[0].path.as_bytes().ends_with(odd.as_bytes()));
}

/// What a podbayd that was tampered with could answer.
#[derive(Clone, Copy)]
enum Lie {
    /// A head that isn't JSON.
    NoJson,
    /// JSON of something else.
    WrongType,
    /// A head that is announced larger than any.
    HugeHead,
    /// A payload without end.
    EndlessPayload,
    /// An error that nobody knows.
    StrangeError,
}

fn liar(lie: Lie) -> (tempfile::TempDir, Sandbox) {
    support::fake_podbayd(move |_| answer(lie))
}

fn answer(lie: Lie) -> Response<MessageBody> {
    let (head, payload) = match lie {
        Lie::NoJson => (Bytes::from_static(b"\0\0\0\x03{]}"), Payload::Bytes(Bytes::new())),
        Lie::WrongType => (encode_head(&7).unwrap(), Payload::Bytes(Bytes::new())),
        Lie::HugeHead => (Bytes::from_static(b"\xff\xff\xff\xffabc"), Payload::Bytes(Bytes::new())),
        Lie::EndlessPayload => {
            let (sender, receiver) = tokio::sync::mpsc::channel(1);
            tokio::spawn(async move { while sender.send(Ok(Bytes::from(vec![0; 1 << 20]))).await.is_ok() {} });
            let head = serde_json::json!({
                "path": "/a", "encoding": "binary", "kind": "file", "size": 1, "mode": 0,
                "modified": {"secs": 0, "nanos": 0},
            });
            (encode_head(&head).unwrap(), Payload::Stream(receiver))
        }
        Lie::StrangeError => {
            let error = serde_json::json!({"code": "from_the_future", "message": "no"});
            let mut response =
                Response::new(MessageBody::new(encode_head(&error).unwrap(), Payload::Bytes(Bytes::new())));
            *response.status_mut() = http::StatusCode::UNPROCESSABLE_ENTITY;
            return response;
        }
    };
    Response::new(MessageBody::new(head, payload))
}

#[tokio::test]
async fn a_podbayd_that_lies_gets_nowhere() {
    for (lie, what) in [(Lie::NoJson, "no JSON"), (Lie::WrongType, "a number"), (Lie::EndlessPayload, "no end")] {
        let (_dir, sandbox) = liar(lie);
        let request = Read::new("/a");
        let read = tokio::time::timeout(Duration::from_secs(10), sandbox.read(&request)).await;
        let error = read.unwrap_or_else(|_| panic!("the client hangs on {what}")).unwrap_err();
        assert!(matches!(error, Error::BadAnswer { .. }), "{what}: {error}");
    }
    let (_dir, sandbox) = liar(Lie::HugeHead);
    let error = sandbox.read(&Read::new("/a")).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. } | Error::BadAnswer { .. }), "{error}");
    let (_dir, sandbox) = liar(Lie::StrangeError);
    let error = sandbox.read(&Read::new("/a")).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Unknown), "{error}");
}

#[tokio::test]
async fn a_greeting_that_is_too_long_is_refused() {
    for (part, most) in [("build", 128), ("instance", 128), ("workdir", 4096), ("state", 4096)] {
        for length in [most, most + 1] {
            let mut greeting = support::greeting();
            greeting[part] = "x".repeat(length).into();
            let (_dir, sandbox) = support::fake_podbayd_as(greeting, |_| unreachable!());
            let welcome = tokio::time::timeout(Duration::from_secs(10), sandbox.hello()).await.unwrap();
            match welcome {
                Ok(_) => assert_eq!(length, most, "{part}"),
                Err(error) => {
                    assert!(
                        length > most && matches!(error, Error::BadAnswer { what: "hello", .. }),
                        "{part}: {error}"
                    );
                }
            }
        }
    }
}
