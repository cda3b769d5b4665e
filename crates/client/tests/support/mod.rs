//! A podbayd for tests: the embedded one, on this machine, in a directory of its own.
#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod kill_below;

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use bytes::Bytes;
use http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use podbay_client::{Sandbox, UnixChannel};
use podbay_proto::body::{MessageBody, Payload};
use podbay_proto::message::encode_head;
use tokio::net::UnixListener;

pub use kill_below::kill_below;

/// podbayd as a file, one for all tests of a binary.
pub fn podbayd() -> &'static Path {
    static FILE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = FILE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("podbayd");
        std::fs::write(&path, podbay_embed::daemon(std::env::consts::ARCH).unwrap()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, path)
    });
    path
}

/// A running podbayd. It and all that its commands started end with this value.
pub struct Daemon {
    pub dir: tempfile::TempDir,
    child: Child,
    arguments: Vec<String>,
    env: Vec<(&'static str, String)>,
}

impl Daemon {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_with_env(arguments, Vec::new())
    }

    pub fn start_with_env(arguments: &[&str], env: Vec<(&'static str, String)>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let child = serve(dir.path(), &arguments, &env);
        Self { dir, child, arguments, env }
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub fn socket(&self) -> PathBuf {
        self.state().join("podbayd.sock")
    }

    pub fn sandbox(&self) -> Sandbox {
        Sandbox::new(UnixChannel::new(self.socket()))
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Kills podbayd without a warning. Its shims go on.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts another podbayd on the same state.
    pub fn restart(&mut self) {
        self.child = serve(self.dir.path(), &self.arguments, &self.env);
    }
}

fn serve(dir: &Path, arguments: &[String], env: &[(&'static str, String)]) -> Child {
    let (mut ready, theirs) = std::io::pipe().unwrap();
    // Standard output is the one descriptor that every child inherits.
    let child = Command::new(podbayd())
        .args(["serve", "--state"])
        .arg(dir.join("state"))
        .arg("--workdir")
        .arg(dir.join("work"))
        .args(["--ready-fd", "1"])
        .args(arguments)
        // As some container runtimes start it.
        .env_remove("HOME")
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(theirs)
        .spawn()
        .unwrap();
    let mut byte = [0];
    ready.read_exact(&mut byte).unwrap_or_else(|error| panic!("podbayd didn't start: {error}"));
    child
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Whatever its commands left has the state directory, where shims live, or the test's directory in its own.
        kill_below(self.dir.path());
    }
}

/// The processes whose command line has all these words in it.
pub fn processes_with(words: &[&str]) -> Vec<i32> {
    let pids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        words.iter().all(|word| line.contains(word))
    })
    .collect()
}

/// Waits until something holds, for at most ten seconds.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("after ten seconds still not: {what}");
}

/// Whether a process is alive and no zombie.
pub fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

/// A podbayd that was tampered with: it greets as podbayd does, and answers every other request with what `answer` returns for
/// its path.
pub fn fake_podbayd(
    answer: impl Fn(&str) -> Response<MessageBody> + Clone + Send + Sync + 'static,
) -> (tempfile::TempDir, Sandbox) {
    fake_podbayd_as(greeting(), answer)
}

/// One that greets with these words.
pub fn fake_podbayd_as(
    greeting: serde_json::Value,
    answer: impl Fn(&str) -> Response<MessageBody> + Clone + Send + Sync + 'static,
) -> (tempfile::TempDir, Sandbox) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (greeting, answer) = (greeting.clone(), answer.clone());
            let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                let path = request.uri().path();
                let response = if path.ends_with("/hello") { json(&greeting) } else { answer(path) };
                async move { std::io::Result::Ok(response) }
            });
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    (dir, Sandbox::new(UnixChannel::new(socket)))
}

/// What a podbayd says that is as it should be.
pub fn greeting() -> serde_json::Value {
    serde_json::json!({
        "version": {"major": 1, "minor": 0}, "build": "", "instance": "i", "workdir": "/", "state": "/s",
    })
}

fn json(value: &serde_json::Value) -> Response<MessageBody> {
    Response::new(MessageBody::new(encode_head(value).unwrap(), Payload::Bytes(Bytes::new())))
}
