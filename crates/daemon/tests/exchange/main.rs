//! `podbayd exchange`: who may use it, and what it says when there is nobody to ask.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use podbay_client::{Sandbox, UnixChannel};
use podbay_proto::exchange::{ExchangeAnswer, ExchangeOpened, ExchangeStatus};
use podbay_proto::session::GREETING;

const PODBAYD: &str = env!("CARGO_BIN_EXE_podbayd");
const SESSION: &str = "00112233445566778899aabbccddeeff";
const OTHER: &str = "ffeeddccbbaa99887766554433221100";

fn podbayd(state: &Path, words: &[&str]) -> Output {
    Command::new(PODBAYD).args(words).arg("--state").arg(state).output().unwrap()
}

fn answer(output: &Output) -> ExchangeAnswer {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Starts a podbayd, which ends by itself, and opens a stream.
fn open(state: &Path) -> ExchangeOpened {
    let workdir = state.parent().unwrap().to_str().unwrap();
    let output = podbayd(state, &["connect", "--workdir", workdir, "--ttl", "60", "--exchange", SESSION]);
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    let (greeting, opened) = said.split_once('\n').unwrap_or_else(|| panic!("{output:?}"));
    assert_eq!(greeting, GREETING);
    serde_json::from_str(opened).unwrap()
}

#[tokio::test]
async fn a_command_can_neither_open_a_stream_nor_use_one() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().canonicalize().unwrap().join("state");
    let opened = open(&state);
    assert_eq!((Path::new(&opened.state), Path::new(&opened.program)), (&*state, Path::new(PODBAYD)));
    let sandbox = Sandbox::new(UnixChannel::new(state.join("podbayd.sock")));
    for ask in [format!("connect --exchange {OTHER}"), format!("exchange --session {SESSION} --wait 0 --data aGk=")] {
        let output = sandbox.run(format!("exec {PODBAYD} {ask} --state {}", state.display()).as_str()).await.unwrap();
        assert!(output.text().contains("podbayd closed the connection") && !output.success(), "{}", output.text());
    }
    // Nothing came of it.
    let output = podbayd(&state, &["exchange", "--session", SESSION, "--number", "1", "--most", "1000", "--wait", "0"]);
    let said = answer(&output);
    assert_eq!((said.status, said.received, &*said.data), (ExchangeStatus::Open, 0, ""));
    let output = podbayd(&state, &["exchange", "--session", OTHER, "--wait", "0"]);
    assert_eq!(answer(&output).status, ExchangeStatus::Gone);
}

#[test]
fn bytes_come_from_a_word_or_from_a_file_that_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().canonicalize().unwrap().join("state");
    open(&state);
    // The beginning of HTTP/2, in two parts.
    let output = podbayd(&state, &["exchange", "--session", SESSION, "--number", "1", "--data", "UFJJICogSFRU"]);
    assert_eq!(answer(&output).received, 9);
    let file = dir.path().join("part");
    let rest = [&b"P/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    std::fs::write(&file, &rest).unwrap();
    let words =
        ["exchange", "--session", SESSION, "--number", "2", "--offset", "9", "--most", "1000", "--wait", "5000"];
    let from = [&words[..], &["--from", file.to_str().unwrap()]].concat();
    let said = answer(&podbayd(&state, &from));
    assert!(said.received == 9 + rest.len() as u64 && !said.data.is_empty() && !file.exists(), "{said:?}");
    // Once more: the file was taken, and the answer is the same.
    let again = answer(&podbayd(&state, &from));
    assert!(again.received == said.received && again.data.starts_with(&said.data[..12]), "{again:?}");
}

#[test]
fn where_no_podbayd_runs_every_stream_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let output = podbayd(dir.path(), &["exchange", "--session", SESSION, "--wait", "0"]);
    assert_eq!(answer(&output).status, ExchangeStatus::Gone);
    assert!(output.status.success());
    let bad = podbayd(dir.path(), &["exchange", "--session", SESSION, "--wait", "soon"]);
    assert!(!bad.status.success() && String::from_utf8_lossy(&bad.stderr).contains("--wait needs a number"));
}
