//! podbayd over a stand-in for the stock runtime on this machine, which loses what it is told to.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use podbay_client::{ByteStream, Channel, Command, Event, Opening, Sandbox};
use podbay_proto::exchange::{ExchangeAnswer, ExchangeOpened, ExchangeStatus, LARGEST_OUTPUT};
use podbay_proto::files::{Download, Read, Write};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::api::{ApiFailure, Executed, RuntimeApi};
use super::exchange::{Exchange, random_session};
use super::opened;

/// The runtime's API, on this machine and in one directory.
#[derive(Debug)]
struct LocalApi {
    dir: PathBuf,
    calls: AtomicU64,
    /// Of so many requests one gets lost, every other time after it was served; 0 for none.
    lose: AtomicU64,
}

impl LocalApi {
    /// Whether this request gets lost before it is served, or its answer afterwards.
    fn loses(&self) -> (bool, bool) {
        let (call, lose) = (self.calls.fetch_add(1, Ordering::SeqCst), self.lose.load(Ordering::SeqCst));
        match call.checked_rem(lose) {
            Some(0) => ((call / lose).is_multiple_of(2), !(call / lose).is_multiple_of(2)),
            _ => (false, false),
        }
    }
}

fn lost() -> ApiFailure {
    ApiFailure::Unavailable("lost".into())
}

impl RuntimeApi for LocalApi {
    async fn execute(&self, words: &[String]) -> Result<Executed, ApiFailure> {
        let failed = |error: io::Error| ApiFailure::Refused(error.to_string());
        let (before, after) = self.loses();
        if before {
            return Err(lost());
        }
        let mut command = tokio::process::Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&self.dir).stdin(Stdio::null());
        let output = command.output().await.map_err(failed)?;
        if after {
            return Err(lost());
        }
        // As strictly as the runtime decodes it.
        let text = |bytes| String::from_utf8(bytes).map_err(|error| ApiFailure::Refused(error.to_string()));
        let (stdout, stderr) = (text(output.stdout)?, text(output.stderr)?);
        Ok(Executed { stdout, stderr, exit_code: output.status.code().unwrap_or(-1) })
    }

    async fn upload(&self, path: &str, content: Bytes) -> Result<(), ApiFailure> {
        let (before, after) = self.loses();
        if before {
            return Err(lost());
        }
        std::fs::write(self.dir.join(path), content).map_err(|error| ApiFailure::Refused(error.to_string()))?;
        if after { Err(lost()) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct LocalChannel {
    api: Arc<LocalApi>,
    /// How long podbayd lives, in seconds.
    life: u32,
}

impl LocalChannel {
    /// Starts podbayd if it isn't running; it ends by itself.
    async fn stream(&self) -> Result<Exchange<LocalApi>, ApiFailure> {
        let path = |name: &str| self.api.dir.join(name).to_str().unwrap().to_owned();
        let session = random_session();
        let words = [&path("podbayd"), "connect", "--state", &path("state"), "--workdir", &path("work")];
        let mut words: Vec<String> = words.map(str::to_owned).into();
        words.extend(["--ttl".into(), self.life.to_string(), "--exchange".into(), session.clone()]);
        let printed = loop {
            match self.api.execute(&words).await {
                Err(ApiFailure::Unavailable(_)) => {}
                printed => break printed?,
            }
        };
        let (greeting, rest) = printed.stdout.split_once('\n').unwrap_or_default();
        assert_eq!(greeting, podbay_proto::session::GREETING, "{}", printed.stderr);
        Ok(Exchange::new(self.api.clone(), opened(rest).unwrap(), session))
    }
}

impl Channel for LocalChannel {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            let stream = self.stream().await.map_err(io::Error::other)?;
            Ok(Box::new(stream.connect()) as Box<dyn ByteStream>)
        })
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    api: Arc<LocalApi>,
    life: u32,
    sandbox: Sandbox,
}

impl Fixture {
    fn new() -> Self {
        Self::living(90)
    }

    fn channel(&self) -> LocalChannel {
        LocalChannel { api: self.api.clone(), life: self.life }
    }

    fn living(life: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        std::fs::create_dir(place.join("work")).unwrap();
        let program = place.join("podbayd");
        std::fs::write(&program, podbay_embed::daemon(std::env::consts::ARCH).unwrap()).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let api = Arc::new(LocalApi { dir: place, calls: AtomicU64::new(1), lose: AtomicU64::new(0) });
        let sandbox = Sandbox::new(LocalChannel { api: api.clone(), life });
        Self { dir, api, life, sandbox }
    }

    /// What uploads have left behind.
    fn left(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with(".podbay-")).collect()
    }
}

/// Bytes of which no part looks like another.
fn large(size: usize) -> Vec<u8> {
    (0..size as u64).map(|number| (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

#[tokio::test]
async fn everything_works_that_works_elsewhere() {
    let fixture = Fixture::new();
    let sandbox = &fixture.sandbox;
    assert_eq!(sandbox.run("echo hello").await.unwrap().text(), "hello\n");
    let mut exec = sandbox.spawn(Command { stdin: true, ..Command::shell("tr a-z A-Z") }).await.unwrap();
    let mut control = exec.control();
    assert!(control.write("input\n").await.unwrap());
    control.close_input().await.unwrap();
    let mut seen = Vec::new();
    while let Some(event) = exec.next().await.unwrap() {
        if let Event::Output(_, data) = event {
            seen.extend_from_slice(&data);
        }
    }
    assert_eq!(seen, b"INPUT\n");
    let background = sandbox.start("sleep 100").await.unwrap();
    assert!(sandbox.kill(&background.id).await.unwrap() >= 1);
    let content = large(9 << 20);
    sandbox.write("large", content.clone()).await.unwrap();
    assert!(sandbox.download(Download::new("large")).await.unwrap() == content);
    let small = large(50_000);
    sandbox.write(Write::new("small"), small.clone()).await.unwrap();
    assert!(sandbox.download(Download::new("small")).await.unwrap() == small);
    assert!(fixture.left().is_empty(), "{:?}", fixture.left());
}

/// Requests and answers get lost all the time. Nothing is lost by it, and nothing runs twice.
#[tokio::test]
async fn what_gets_lost_is_sent_again_without_effect() {
    let fixture = Fixture::new();
    let sandbox = &fixture.sandbox;
    sandbox.run("true").await.unwrap();
    fixture.api.lose.store(3, Ordering::SeqCst);
    for number in 1..=20 {
        let output = sandbox.run("echo x >> ran; wc -l < ran").await.unwrap();
        assert_eq!(output.text().trim(), number.to_string());
    }
    let content = large(5 << 20);
    sandbox.write("large", content.clone()).await.unwrap();
    assert!(sandbox.download(Download::new("large")).await.unwrap() == content);
    let numbers = sandbox.run("seq 200000").await.unwrap();
    assert!(numbers.text().ends_with("200000\n"));
    fixture.api.lose.store(0, Ordering::SeqCst);
    assert_eq!(sandbox.run("wc -l < ran").await.unwrap().text().trim(), "20");
    assert!(fixture.left().is_empty(), "{:?}", fixture.left());
}

/// Nobody can say what a podbayd that is gone did with a request, so its streams end.
#[tokio::test]
async fn a_stream_ends_with_its_podbayd() {
    let fixture = Fixture::living(3);
    let before = fixture.sandbox.hello().await.unwrap();
    let mut stream = fixture.channel().stream().await.unwrap().connect();
    let end = tokio::time::timeout(Duration::from_secs(25), stream.read(&mut [0])).await;
    assert_eq!(end.unwrap().unwrap(), 0);
    // Another one is started, and knows that it is another.
    let after = Sandbox::new(fixture.channel()).hello().await.unwrap();
    assert_ne!(after.instance, before.instance);
}

/// Answers whatever it is told to.
#[derive(Debug)]
struct HostileApi(String);

impl RuntimeApi for HostileApi {
    async fn execute(&self, _: &[String]) -> Result<Executed, ApiFailure> {
        Ok(Executed { stdout: self.0.clone(), stderr: String::new(), exit_code: 0 })
    }

    async fn upload(&self, _: &str, _: Bytes) -> Result<(), ApiFailure> {
        Ok(())
    }
}

#[tokio::test]
async fn impossible_answers_end_the_stream() {
    let answer = |received, offset, data: &[u8]| {
        let status = ExchangeStatus::Open;
        serde_json::to_string(&ExchangeAnswer { status, received, offset, data: STANDARD.encode(data) }).unwrap()
    };
    let hostile = [
        String::new(),
        "nonsense".into(),
        r#"{"status":"open","data":"%%%"}"#.into(),
        r#"{"status":"other"}"#.into(),
        answer(u64::MAX, 0, b""),
        answer(0, u64::MAX, b""),
        answer(0, 1, b"x"),
        answer(0, 0, &vec![0; LARGEST_OUTPUT + 1]),
    ];
    for said in hostile {
        let shown: String = said.chars().take(60).collect();
        let opened = ExchangeOpened { program: "/x".into(), state: "/y".into() };
        let mut stream = Exchange::new(Arc::new(HostileApi(said)), opened, random_session()).connect();
        let _ = stream.write_all(b"hello").await;
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut [0])).await;
        assert_eq!(read.expect(&shown).unwrap(), 0, "{shown}");
    }
    for said in ["", "{}", r#"{"program":"x","state":"/y"}"#, r#"{"program":"/x","state":"/\u0000"}"#] {
        assert_eq!(opened(said), None);
    }
}

/// A stream that nobody reads holds no more than is allowed.
#[tokio::test]
async fn an_endless_answer_waits() {
    let fixture = Fixture::new();
    let read = Read::new("small");
    fixture.sandbox.write("small", "content").await.unwrap();
    let mut exec = fixture.sandbox.spawn("cat /dev/zero").await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Other requests are served meanwhile.
    fixture.sandbox.read(read.clone()).await.unwrap();
    assert!(matches!(exec.next().await.unwrap(), Some(Event::Output(..))));
    fixture.sandbox.kill(exec.id()).await.unwrap();
}
