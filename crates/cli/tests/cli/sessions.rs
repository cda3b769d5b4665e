//! Streams, signals and exit codes of `podbay run` and `podbay exec`.

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::home::{Home, text};

/// What goes through `cat`: 2 GB when there is time, as in `cargo xtask test`.
fn through() -> u64 {
    if std::env::var_os("PODBAY_SOAK").is_some() { 2 << 30 } else { 128 << 20 }
}

/// FNV-1a over words: fast enough not to be what is measured, and no order of pieces but the right one has the same.
struct Sum(u64, Vec<u8>);

impl Sum {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325, Vec::new())
    }

    fn add(&mut self, bytes: &[u8]) {
        self.1.extend_from_slice(bytes);
        let whole = self.1.len() / 8 * 8;
        for word in self.1[..whole].chunks_exact(8) {
            self.0 = (self.0 ^ u64::from_le_bytes(word.try_into().unwrap())).wrapping_mul(0x100_0000_01b3);
        }
        self.1.drain(..whole);
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Reads until a line comes, so that the command is known to run.
fn first_line(child: &mut Child) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    let stdout = child.stdout.as_mut().unwrap();
    while stdout.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    text(&line)
}

#[test]
fn everything_comes_through_unchanged() {
    let home = Home::new();
    let mut child = home.podbay(&["run", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let began = Instant::now();
    let writer = std::thread::spawn(move || {
        let mut sum = Sum::new();
        let mut piece = vec![0_u8; 1 << 20];
        for number in 0..through() >> 20 {
            // No two pieces are alike.
            for (index, word) in piece.chunks_exact_mut(8).enumerate() {
                word.copy_from_slice(&(number << 32 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            }
            sum.add(&piece);
            stdin.write_all(&piece).unwrap();
        }
        sum.0
    });
    let mut stdout = child.stdout.take().unwrap();
    let (mut sum, mut count, mut buffer) = (Sum::new(), 0, vec![0; 1 << 20]);
    loop {
        match stdout.read(&mut buffer).unwrap() {
            0 => break,
            length => {
                sum.add(&buffer[..length]);
                count += length as u64;
            }
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!((count, sum.0), (through(), writer.join().unwrap()));
    eprintln!("{} MiB in {:?}", through() >> 20, began.elapsed());
    assert!(home.is_empty());
}

#[test]
fn exit_codes_are_the_commands_own() {
    let home = Home::new();
    for (words, code) in [
        (&["run", "--", "true"][..], 0),
        (&["run", "--", "sh", "-c", "exit 7"], 7),
        (&["run", "--", "sh", "-c", "kill -9 $$"], 137),
        (&["run", "--timeout", "200ms", "--", "sleep", "60"], 124),
        (&["run", "--", "/nonexistent"], 127),
        (&["run", "--", "/etc/passwd"], 126),
        (&["run", "--cwd", "/nonexistent", "--", "true"], 125),
        (&["run", "--no-such-option", "--", "true"], 125),
        (&["run"], 125),
    ] {
        let output = home.output(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", text(&output.stderr));
        let silent = matches!(code, 0 | 7 | 137);
        assert_eq!(output.stderr.is_empty(), silent, "{words:?}: {}", text(&output.stderr));
    }
    assert!(home.is_empty());
}

#[test]
fn streams_stay_apart_and_options_arrive() {
    let home = Home::new();
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("seen"), "by the sandbox").unwrap();
    let mount = format!("{}:/data", host.path().display());
    let script = "echo $WORD; cat /data/seen; echo to stderr >&2; touch /data/new 2>/dev/null || echo read-only";
    let output = home.output(&["run", "--env", "WORD=hello", "--mount", &mount, "--", "sh", "-c", script]);
    assert_eq!(text(&output.stdout), "hello\nby the sandboxread-only\n");
    assert_eq!(text(&output.stderr), "to stderr\n");
    let workspace = host.path().to_str().unwrap();
    let output = home.output(&["run", "--workspace", workspace, "--", "sh", "-c", "echo made > here"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(host.path().join("here")).unwrap(), "made\n");
}

#[test]
fn closed_input_is_empty_input() {
    let home = Home::new();
    let output = std::process::Command::new("sh")
        .args(["-c", "exec \"$0\" run -- cat <&-", env!("CARGO_BIN_EXE_podbay")])
        .env("PODBAY_HOME", home.path())
        .output()
        .unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    // A command that doesn't read its input isn't kept by one that never ends.
    let mut child =
        home.podbay(&["run", "--", "echo", "done"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let held = child.stdin.take();
    assert_eq!(first_line(&mut child), "done");
    assert!(child.wait().unwrap().success());
    drop(held);
}

#[test]
fn an_interrupt_ends_command_and_sandbox() {
    let home = Home::new();
    for (script, sent, code) in [
        ("echo up; sleep 60", rustix::process::Signal::INT, 130),
        ("echo up; sleep 60", rustix::process::Signal::TERM, 143),
        // One that handles the signal has the last word,
        ("trap 'exit 5' INT; echo up; while :; do sleep 0.05; done", rustix::process::Signal::INT, 5),
        // but only if it ends.
        ("trap '' INT; echo up; while :; do sleep 0.05; done", rustix::process::Signal::INT, 130),
    ] {
        let mut child = home.podbay(&["run", "--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(first_line(&mut child), "up");
        let began = Instant::now();
        signal(&child, sent);
        assert_eq!(child.wait().unwrap().code(), Some(code), "{script}");
        assert!(began.elapsed() < Duration::from_secs(20), "{script}");
        assert!(home.is_empty(), "{script}");
    }
}

/// `nohup podbay run` ended with its terminal, and a script's background job with the script's interrupt.
#[test]
fn signals_that_were_ignored_at_the_start_stay_ignored() {
    let home = Home::new();
    let mut child = std::process::Command::new("env")
        .args(["--ignore-signal=HUP,INT", env!("CARGO_BIN_EXE_podbay"), "run", "--", "sh", "-c"])
        .arg("echo up; sleep 1; echo done")
        .env("PODBAY_HOME", home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(first_line(&mut child), "up");
    signal(&child, rustix::process::Signal::HUP);
    signal(&child, rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_killed_podbay_leaves_nothing() {
    let home = Home::new();
    let mut child =
        home.podbay(&["run", "--", "sh", "-c", "echo up; sleep 60"]).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(first_line(&mut child), "up");
    child.kill().unwrap();
    child.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !home.is_empty() {
        assert!(Instant::now() < until, "the sandbox is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_closed_output_ends_it_quietly() {
    let home = Home::new();
    let mut child = home.podbay(&["run", "--", "yes"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(first_line(&mut child), "y");
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(text(&output.stderr), "");
    assert!(home.is_empty());
}

#[test]
fn signals_are_heard_while_nobody_reads() {
    let home = Home::new();
    let mut child = home.podbay(&["run", "--", "yes"]).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(first_line(&mut child), "y");
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    signal(&child, rustix::process::Signal::INT);
    child.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(home.is_empty());
}

#[test]
fn an_interrupted_exec_leaves_the_sandbox_without_the_command() {
    let home = Home::new();
    assert!(home.output(&["create", "--name", "box"]).status.success());
    let words = ["exec", "box", "--", "sh", "-c", "trap '' INT; echo up; sleep 60; sleep 60"];
    let mut child = home.podbay(&words).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(first_line(&mut child), "up");
    signal(&child, rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(text(&home.output(&["--json", "ps", "box"]).stdout), "[]\n");
}

#[test]
fn detached_commands_are_found_attached_to_and_killed() {
    let home = Home::new();
    assert!(home.output(&["create", "--name", "box"]).status.success());
    let script = "echo first; sleep 60";
    let id = text(&home.output(&["exec", "box", "-d", "--", "sh", "-c", script]).stdout).trim().to_owned();
    let mut child = home.podbay(&["attach", "box", &id[..8]]).stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(first_line(&mut child), "first");
    signal(&child, rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let listed = text(&home.output(&["ps", "box"]).stdout);
    assert!(listed.contains(&id) && listed.contains("running"), "{listed}");
    assert!(home.output(&["kill", "box", &id[..8]]).status.success());
    let attached = home.output(&["attach", "box", &id, "--from", "2"]);
    assert_eq!((attached.status.code(), text(&attached.stdout)), (Some(137), "rst\n".to_owned()));
}

#[test]
fn exec_passes_input_only_when_asked() {
    let home = Home::new();
    assert!(home.output(&["create", "--name", "box"]).status.success());
    for (flag, expected) in [("-i", "given"), ("--cwd=/tmp", "")] {
        let mut child = home
            .podbay(&["exec", "box", flag, "--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"given").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), expected.to_owned()), "{flag}");
    }
}
