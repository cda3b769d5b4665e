//! podbayd where its log on standard error, or its standard output, can't be written.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use podbay_client::{Sandbox, UnixChannel};

/// `eprintln!` ended podbayd when its log was on a full disk, just when it wanted to say that the disk is full.
#[tokio::test]
async fn podbayd_serves_when_neither_its_lifetime_nor_its_log_can_be_written() {
    let dir = tempfile::tempdir().unwrap();
    // The lifetime file is renamed into place from here. Nobody, not even root, can write to a directory.
    std::fs::create_dir_all(dir.path().join("state/lifetime.new")).unwrap();
    let (mut ready, theirs) = std::io::pipe().unwrap();
    let mut podbayd = Command::new(support::podbayd())
        .args(["serve", "--ready-fd", "1", "--ends-container", "--ttl", "600", "--state"])
        .arg(dir.path().join("state"))
        .stdin(Stdio::null())
        .stdout(theirs)
        .stderr(File::options().write(true).open("/dev/full").unwrap())
        .current_dir(dir.path())
        .spawn()
        .unwrap();
    let started = ready.read_exact(&mut [0]);
    let welcome = match started {
        Ok(()) => Sandbox::new(UnixChannel::new(dir.path().join("state/podbayd.sock"))).hello().await.map(drop),
        Err(error) => panic!("podbayd didn't start: {error}"),
    };
    podbayd.kill().unwrap();
    podbayd.wait().unwrap();
    support::kill_below(dir.path());
    welcome.unwrap();
}

/// `println!` made podbayd dump core when nobody read what it printed.
#[test]
fn output_that_nobody_takes_is_a_failure_and_no_crash() {
    for words in [&["--help"][..], &["--version"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let status = Command::new(support::podbayd()).args(words).stdout(full).status().unwrap();
        assert_eq!(status.code(), Some(1), "{words:?}: {status}");
    }
}
