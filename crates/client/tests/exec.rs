//! Commands, one behaviour each.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use podbay_client::{Command, CommandLimits, ErrorCode, Event, ExecId, State, Stream};
use support::{Daemon, alive, eventually};

#[tokio::test]
async fn a_command_prints_and_ends() {
    let daemon = Daemon::start();
    let output = daemon.sandbox().run("echo out; echo err >&2; exit 7").await.unwrap();
    assert_eq!(output.text(), "out\nerr\n");
    assert_eq!(output.stdout(), b"out\n");
    assert_eq!(output.stderr(), b"err\n");
    assert_eq!(output.code(), Some(7));
    assert!(output.cut.is_none());
    let log = output.info.log.to_string();
    assert_eq!(std::fs::read_to_string(log).unwrap(), "out\nerr\n");
    let exit = output.exit().unwrap();
    assert!(exit.duration_us > 0 && exit.usage.peak_memory > 0, "{exit:?}");
}

#[tokio::test]
async fn merged_streams_keep_their_exact_order() {
    let daemon = Daemon::start();
    let line = "for i in 1 2 3 4 5 6 7 8 9; do echo e$i >&2; echo o$i; done";
    let output = daemon.sandbox().run(Command { merge: true, ..Command::shell(line) }).await.unwrap();
    let expected: String = (1..=9).map(|number| format!("e{number}\no{number}\n")).collect();
    assert_eq!(output.text(), expected);
    assert!(output.stderr().is_empty());
}

#[tokio::test]
async fn output_is_written_to_a_file_without_being_fetched() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let output = sandbox.run_capped("seq 100000", 100).await.unwrap();
    assert_eq!(output.bytes().len(), 100);
    let all: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    let saved = |path: &'static str, cap| sandbox.write_output_of(path, output.info.id.clone(), cap, "<gap>");
    let whole = saved("deep/whole", 1 << 20).await.unwrap();
    assert_eq!((whole.size, whole.line_breaks), (all.len() as u64, Some(100_000)));
    assert_eq!(std::fs::read_to_string(daemon.work().join("deep/whole")).unwrap(), all);
    let ends = saved("ends", 6).await.unwrap();
    assert_eq!(std::fs::read_to_string(daemon.work().join("ends")).unwrap(), "1\n2<gap>00\n");
    assert_eq!((ends.size, ends.line_breaks), (11, Some(2)));
    // Nothing is written for a command that there isn't.
    let unknown = sandbox.write_output_of("none", ExecId::new("unknown").unwrap(), 9, "").await.unwrap_err();
    assert_eq!(unknown.code(), Some(ErrorCode::ExecNotFound), "{unknown}");
    assert!(!daemon.work().join("none").exists());
}

#[tokio::test]
async fn it_runs_in_the_working_directory_with_the_given_environment() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let output = sandbox.run("pwd; ls -la /dev/fd/0 | sed 's/.*-> //'").await.unwrap();
    assert_eq!(output.text(), format!("{}\n/dev/null\n", daemon.work().display()));
    let command = Command {
        cwd: Some("/".into()),
        env: BTreeMap::from([("GREETING".to_owned(), "hi there".into())]),
        ..Command::shell("pwd; echo $GREETING; echo ${PODBAY_TOKEN-unset}")
    };
    assert_eq!(sandbox.run(command).await.unwrap().text(), "/\nhi there\nunset\n");
    // crun sets none for a user who isn't in the image's passwd file, and git and others fail without.
    assert_eq!(sandbox.run("echo $HOME").await.unwrap().text(), "/\n");
    let command = Command { env: BTreeMap::from([("HOME".to_owned(), "/tmp".into())]), ..Command::shell("echo $HOME") };
    assert_eq!(sandbox.run(command).await.unwrap().text(), "/tmp\n");
    // It used to be relative to wherever podbayd had been started.
    std::fs::create_dir(daemon.work().join("below")).unwrap();
    let below = Command { cwd: Some("below".into()), ..Command::shell("pwd") };
    assert_eq!(sandbox.run(below).await.unwrap().text(), format!("{}/below\n", daemon.work().display()));
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let missing = sandbox.run(Command::argv(["no-such-program"])).await.unwrap_err();
    assert_eq!(missing.code(), Some(ErrorCode::SpawnFailed), "{missing}");
    assert!(missing.to_string().contains("no-such-program"), "{missing}");
    assert_eq!(missing.errno(), Some(2));
    let denied = sandbox.run(Command::argv(["/etc/passwd"])).await.unwrap_err();
    assert_eq!(denied.code(), Some(ErrorCode::SpawnFailed), "{denied}");
    assert_eq!(denied.errno(), Some(13));
    let nowhere = Command { cwd: Some("/no/such/dir".into()), ..Command::shell("true") };
    let nowhere = sandbox.run(nowhere).await.unwrap_err();
    assert_eq!(nowhere.code(), Some(ErrorCode::NotFound), "{nowhere}");
    assert!(nowhere.to_string().contains("/no/such/dir"), "{nowhere}");
    for bad in [Command::argv([] as [&str; 0]), Command::argv(["a\0b"]), Command::shell("a\0b")] {
        assert_eq!(sandbox.run(bad).await.unwrap_err().code(), Some(ErrorCode::InvalidArgument));
    }
}

#[tokio::test]
async fn a_signal_gives_128_and_its_number() {
    let daemon = Daemon::start();
    let output = daemon.sandbox().run("kill -SEGV $$").await.unwrap();
    assert_eq!(output.code(), Some(139));
    assert_eq!(output.exit().unwrap().signal.as_deref(), Some("SIGSEGV"));
}

#[tokio::test]
async fn a_line_longer_than_an_argument_may_be_runs() {
    let daemon = Daemon::start();
    let long = format!("printf %s '{}' | wc -c", "x".repeat(300_000));
    assert_eq!(daemon.sandbox().run(long).await.unwrap().text().trim(), "300000");
}

#[tokio::test]
async fn a_timeout_reaches_children_that_fled() {
    // A child in a session of its own, forked twice, with every descriptor closed: nothing but its parent link is left.
    let daemon = Daemon::start();
    let line = "echo before; setsid sh -c '(echo $$ > deep; exec >&- 2>&- <&-; trap \"\" TERM; while :; do sleep 1; \
                done) &' & wait; sleep 60";
    let command = Command { timeout_ms: 400, grace_ms: 200, ..Command::shell(line) };
    let begun = Instant::now();
    let output = daemon.sandbox().run(command).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(output.code(), Some(124));
    assert!(output.exit().unwrap().timed_out);
    assert_eq!(output.text(), "before\n");
    eventually("nothing of the command is left", || processes_in(&daemon).is_empty()).await;
}

fn processes_in(daemon: &Daemon) -> Vec<i32> {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(daemon.work()))
                && alive(*pid)
        })
        .collect()
}

#[tokio::test]
async fn background_children_live_on_are_listed_and_can_be_killed() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let begun = Instant::now();
    let output = sandbox.run("sleep 77 & echo $!").await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "the child didn't hold the result back");
    let pid: i32 = output.text().trim().parse().unwrap();
    assert!(alive(pid));
    eventually("the child runs its program", || std::fs::read(format!("/proc/{pid}/comm")).unwrap() == b"sleep\n")
        .await;
    let listed = sandbox.commands(true).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [pid]);
    assert_eq!(listed[0].processes[0].name, "sleep");
    assert!(matches!(listed[0].state, State::Exited(_)));
    assert_eq!(sandbox.kill(&output.info.id).await.unwrap(), 1);
    eventually("the child has died", || !alive(pid)).await;
    for _ in 0..100 {
        if sandbox.commands(true).await.unwrap().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the shim stayed");
}

#[tokio::test]
async fn an_id_runs_once() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let id = ExecId::new("only-once").unwrap();
    for _ in 0..5 {
        sandbox.start_as(id.clone(), "echo ran >> count; sleep 0.2").await.unwrap();
    }
    let info = sandbox.attach(&id, 0).await.unwrap().wait().await.unwrap();
    assert!(matches!(info.state, State::Exited(_)));
    sandbox.start_as(id, "echo ran >> count").await.unwrap();
    assert_eq!(std::fs::read_to_string(daemon.work().join("count")).unwrap(), "ran\n");
}

#[tokio::test]
async fn output_streams_while_the_command_runs() {
    let daemon = Daemon::start();
    let mut exec =
        daemon.sandbox().spawn("echo one; while ! [ -e go ]; do sleep 0.01; done; echo two >&2").await.unwrap();
    assert_eq!(exec.next().await.unwrap(), Some(Event::Output(Stream::Stdout, "one\n".into())));
    std::fs::write(daemon.work().join("go"), "").unwrap();
    assert_eq!(exec.next().await.unwrap(), Some(Event::Output(Stream::Stderr, "two\n".into())));
    let Some(Event::End(info)) = exec.next().await.unwrap() else { panic!("no end") };
    assert!(matches!(info.state, State::Exited(exit) if exit.code == 0));
    assert_eq!(exec.next().await.unwrap(), None);
    let mut again = daemon.sandbox().attach(exec.id(), 2).await.unwrap();
    assert_eq!(again.next().await.unwrap(), Some(Event::Output(Stream::Stdout, "e\n".into())));
}

#[tokio::test]
async fn input_arrives_whole_and_can_be_closed() {
    let daemon = Daemon::start();
    let command = Command { stdin: true, ..Command::shell("wc -c; echo done") };
    let mut exec = daemon.sandbox().spawn(command).await.unwrap();
    let mut control = exec.control();
    assert!(control.write(vec![b'x'; 3_000_000]).await.unwrap());
    control.close_input().await.unwrap();
    let mut text = Vec::new();
    while let Some(event) = exec.next().await.unwrap() {
        if let Event::Output(_, data) = event {
            text.extend_from_slice(&data);
        }
    }
    assert_eq!(String::from_utf8(text).unwrap(), "3000000\ndone\n");
    assert!(!control.write("more").await.unwrap(), "it has ended");
}

#[tokio::test]
async fn a_command_can_be_run_with_its_input() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    // Often: input that had arrived while the command didn't read was sometimes forgotten.
    for _ in 0..20 {
        let output = sandbox.run_with_input("wc -c; echo done", vec![b'x'; 3_000_000], 1 << 20).await.unwrap();
        assert_eq!(output.text(), "3000000\ndone\n");
    }
    let deaf = sandbox.run_with_input("exit 4", vec![b'x'; 3_000_000], 1 << 20).await.unwrap();
    assert_eq!(deaf.code(), Some(4), "input that nobody reads is no error");
    let missing = sandbox.run_with_input(Command::argv(["/no/such"]), "x", 1 << 20).await.unwrap_err();
    assert_eq!(missing.code(), Some(podbay_proto::ErrorCode::SpawnFailed));
    let never = sandbox.run_with_input("cat; sleep 100", "x", 1 << 20);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(300), never).await.is_err());
    while !sandbox.commands(true).await.unwrap().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_command_that_stops_reading_is_told_apart_from_one_that_is_slow() {
    let daemon = Daemon::start();
    let command = Command { stdin: true, ..Command::shell("head -c 3; exec <&-; sleep 0.3") };
    let mut exec = daemon.sandbox().spawn(command).await.unwrap();
    let mut control = exec.control();
    let mut open = true;
    for _ in 0..100 {
        open = control.write(vec![b'x'; 100_000]).await.unwrap();
        if !open {
            break;
        }
    }
    assert!(!open);
    assert!(matches!(exec.wait().await.unwrap().state, State::Exited(_)));
}

#[tokio::test]
async fn dropping_the_future_kills_the_command() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let run = sandbox.run("echo $$ > pid; sleep 60");
    assert!(tokio::time::timeout(Duration::from_millis(300), run).await.is_err());
    let pid: i32 = std::fs::read_to_string(daemon.work().join("pid")).unwrap().trim().parse().unwrap();
    eventually("the command has died", || !alive(pid)).await;
}

#[tokio::test]
async fn a_result_keeps_both_ends_of_a_long_output() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let output = sandbox.run_capped("seq 1 100000", 1000).await.unwrap();
    let cut = output.cut.unwrap();
    let text = output.text();
    assert!(text.starts_with("1\n2\n3\n") && text.ends_with("99999\n100000\n"), "{text}");
    assert_eq!(cut.bytes + output.bytes().len() as u64, output.info.output_bytes);
    assert_eq!(output.info.output_bytes, 588_895);
    assert_eq!(std::fs::metadata(output.info.log.to_string()).unwrap().len(), 588_895);
}

#[tokio::test]
async fn sixty_four_run_at_once() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let runs = (0..64).map(|number| {
        let sandbox = sandbox.clone();
        tokio::spawn(async move { sandbox.run(format!("sleep 0.2; echo {number}")).await.unwrap().text().into_owned() })
    });
    let begun = Instant::now();
    for (number, run) in runs.collect::<Vec<_>>().into_iter().enumerate() {
        assert_eq!(run.await.unwrap(), format!("{number}\n"));
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_file_size_limit_holds() {
    let daemon = Daemon::start();
    let limits = CommandLimits { file_size: Some(1000), ..CommandLimits::default() };
    let command = Command { limits, ..Command::shell("head -c 5000 /dev/zero > big") };
    assert!(!daemon.sandbox().run(command).await.unwrap().success());
    assert_eq!(std::fs::metadata(daemon.work().join("big")).unwrap().len(), 1000);
}

#[tokio::test]
async fn limits_that_need_a_cgroup_hold_or_are_refused() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let hog = Command {
        limits: CommandLimits { memory: Some(64 << 20), ..CommandLimits::default() },
        ..Command::shell("head -c 200000000 /dev/zero | tail -c 190000000 | wc -c")
    };
    match sandbox.run(hog).await {
        Ok(output) => {
            assert!(output.exit().unwrap().out_of_memory, "{:?}", output.info);
            let limits = CommandLimits { processes: Some(8), ..CommandLimits::default() };
            let bomb = Command { limits, ..Command::shell("for i in 1 2 3 4 5 6 7 8 9; do sleep 0.3 & done; wait") };
            let output = sandbox.run(bomb).await.unwrap();
            assert!(output.text().to_lowercase().contains("fork"), "{}", output.text());
            let left = |kind: &str| {
                let groups = std::fs::read_dir(format!("/sys/fs/cgroup/{kind}")).into_iter().flatten().flatten();
                groups.filter(|entry| entry.file_name().to_string_lossy().contains(output.info.id.as_str())).count()
            };
            eventually("the cgroups are gone", || left("pids") == 0 && left("memory") == 0).await;
        }
        // Where no cgroup can be had, that is said, and nothing runs.
        Err(error) => assert_eq!(error.code(), Some(ErrorCode::Unsupported), "{error}"),
    }
}

#[tokio::test]
async fn unknown_ids_are_not_found() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let id = ExecId::new("nobody").unwrap();
    assert_eq!(sandbox.status(&id).await.unwrap_err().code(), Some(ErrorCode::ExecNotFound));
    assert_eq!(sandbox.kill(&id).await.unwrap_err().code(), Some(ErrorCode::ExecNotFound));
    assert_eq!(sandbox.attach(&id, 0).await.unwrap_err().code(), Some(ErrorCode::ExecNotFound));
}
