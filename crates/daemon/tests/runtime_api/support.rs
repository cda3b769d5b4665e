//! A podbayd that serves the stock runtime's API, and an HTTP client that can send anything.

#[path = "../../../client/tests/support/kill_below.rs"]
mod kill_below;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use podbay_client::{Sandbox, UnixChannel};
use serde_json::{Value, json};

use kill_below::kill_below;

/// A running podbayd. It and all that its commands started end with this value.
pub struct Runtime {
    pub dir: tempfile::TempDir,
    pub address: String,
    child: Child,
}

/// An answer.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Runtime {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(env: &[(&str, &str)]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), env)
    }

    pub fn start_in(dir: tempfile::TempDir, env: &[(&str, &str)]) -> Self {
        std::fs::create_dir(dir.path().join("base")).unwrap();
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let (mut ready, theirs) = std::io::pipe().unwrap();
        // As in Podbay's pods: without it, commands have no filter of their own.
        let mut command = Command::new("setpriv");
        command
            .args([
                "--no-new-privs",
                env!("CARGO_BIN_EXE_podbayd"),
                "serve",
                "--ready-fd",
                "1",
                "--runtime-api",
                &address,
                "--state",
            ])
            .arg(dir.path().join("state"));
        command.arg("--workdir").arg(dir.path().join("base")).envs(env.iter().copied());
        let child = command.stdin(Stdio::null()).stdout(theirs).spawn().unwrap();
        drop(command);
        let mut byte = [0];
        ready.read_exact(&mut byte).unwrap_or_else(|error| panic!("podbayd didn't start: {error}"));
        Self { dir, address, child }
    }

    pub fn base(&self) -> PathBuf {
        self.dir.path().join("base")
    }

    /// podbayd by its own protocol.
    pub fn sandbox(&self) -> Sandbox {
        Sandbox::new(UnixChannel::new(self.dir.path().join("state/podbayd.sock")))
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
        stream
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1"), &[], b"")
    }

    pub fn execute(&self, body: &Value) -> Answer {
        self.send("POST /execute HTTP/1.1", &[("Content-Type", "application/json")], body.to_string().as_bytes())
    }

    /// Runs a command that has to be answered with a result.
    pub fn run(&self, command: &str) -> Value {
        let answer = self.execute(&json!({"command": command}));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    pub fn upload(&self, name: &str, content: &[u8]) -> Answer {
        let body = [form_head(name).as_bytes(), content, b"\r\n--b--\r\n"].concat();
        self.send("POST /upload HTTP/1.1", &[FORM], &body)
    }

    /// Sends a request and reads its answer.
    pub fn send(&self, line: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = self.connect();
        let mut head = format!("{line}\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        // Whoever refuses a body may hang up before all of it is sent.
        let _ = stream.write_all(body);
        answer(&mut stream)
    }

    /// The largest amount of memory that podbayd has had, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// It is still the same podbayd, and serves both its own clients and everybody.
    pub fn is_well(&mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "podbayd has ended");
        let begun = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let output = runtime.block_on(async { self.sandbox().run("echo well").await.unwrap() });
        assert_eq!(output.text(), "well\n");
        assert_eq!(self.get("/").status, 200);
        assert!(begun.elapsed() < Duration::from_secs(15), "that took {:?}", begun.elapsed());
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        kill_below(self.dir.path());
    }
}

pub const FORM: (&str, &str) = ("Content-Type", "multipart/form-data; boundary=b");

/// The beginning of a form with a file.
pub fn form_head(name: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n")
}

/// Reads an answer to its end.
pub fn answer(stream: &mut impl Read) -> Answer {
    let mut all = Vec::new();
    // Whoever is refused may be cut off after the answer.
    let _ = stream.read_to_end(&mut all);
    let end = all.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&all)));
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap();
    let body = all.split_off(end + 4);
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Answer { status, head, body: if chunked { dechunked(&body) } else { body } }
}

fn dechunked(mut rest: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").expect("the answer was cut off");
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return all;
        }
        all.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 4 + size..];
    }
}
