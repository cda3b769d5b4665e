//! Commands that attack what looks after them: their deadline holds, their caller is answered, and nothing of them is left.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::time::{Duration, Instant};

use podbay_client::{Command, ExecId, Output, Sandbox, State};
use support::{Daemon, alive, eventually};

/// A command with little time.
fn brief(line: &str) -> Command {
    Command { timeout_ms: 700, grace_ms: 200, ..Command::shell(line) }
}

async fn timed_out(sandbox: &Sandbox, line: &str) -> Output {
    let begun = Instant::now();
    let output = sandbox.run(brief(line)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(8), "{line}: {:?}", begun.elapsed());
    assert_eq!(output.code(), Some(124), "{line}: {:?}", output.info);
    assert!(output.exit().unwrap().timed_out, "{line}");
    output
}

fn processes_in(daemon: &Daemon) -> Vec<i32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(daemon.work()))
                && alive(*pid)
        })
        .collect()
}

async fn nothing_is_left(daemon: &Daemon) {
    eventually("nothing of the command is left", || processes_in(daemon).is_empty()).await;
    assert_eq!(daemon.sandbox().commands(true).await.unwrap(), []);
}

/// `kill -STOP $PPID` once made a time-out never fire and its caller wait forever.
#[tokio::test]
async fn a_stopped_shim_keeps_no_command_alive() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    for line in [
        "echo before; sleep 0.2; kill -STOP $PPID; sleep 30",
        "echo before; sleep 0.2; trap '' TERM HUP; setsid sh -c '(kill -STOP '$PPID'; sleep 30) & sleep 30' & sleep 30",
        "echo before; sleep 0.2; kill -STOP $PPID; for i in $(seq 1 1000); do (sleep 0.1 &) ; done; sleep 20",
    ] {
        assert_eq!(timed_out(&sandbox, line).await.text(), "before\n", "{line}");
        nothing_is_left(&daemon).await;
    }
    assert_eq!(sandbox.run("echo well").await.unwrap().text(), "well\n");
}

/// A killed shim once left its children running without a deadline.
#[tokio::test]
async fn a_killed_shim_takes_its_command_along() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let begun = Instant::now();
    let output = sandbox.run("echo before; sleep 0.2; setsid sleep 30 & kill -KILL $PPID; sleep 30").await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!((&output.info.state, &*output.text()), (&State::Lost, "before\n"));
    nothing_is_left(&daemon).await;
}

/// Everything that a command forks while it is being killed is killed too.
#[tokio::test]
async fn a_fork_bomb_below_a_stopped_shim_is_ended() {
    let daemon = Daemon::start();
    // It goes on forking for longer than its time and ends by itself, should nobody end it.
    let line = "kill -STOP $PPID; for i in 1 2 3 4; do \
                (for j in $(seq 1 150); do (sleep 0.01; exec sleep 20) & sleep 0.02; done; sleep 20) & done; sleep 20";
    timed_out(&daemon.sandbox(), line).await;
    nothing_is_left(&daemon).await;
}

/// A stopped zygote once kept every later command waiting for a shim.
#[tokio::test]
async fn a_stopped_zygote_is_woken_or_replaced() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let zygote = |pid: i32| {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        list.split_whitespace().next().unwrap().to_owned()
    };
    let stop = |pid: &str| assert!(std::process::Command::new("kill").args(["-STOP", pid]).status().unwrap().success());
    stop(&zygote(daemon.pid()));
    let begun = Instant::now();
    assert_eq!(sandbox.run("echo ran >> count; echo late").await.unwrap().text(), "late\n");
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    // Stopped again and again.
    let pid = zygote(daemon.pid());
    let again = tokio::task::spawn_blocking(move || {
        for _ in 0..400 {
            let _ =
                std::process::Command::new("kill").args(["-STOP", &pid]).stderr(std::process::Stdio::null()).status();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    assert_eq!(sandbox.run("echo ran >> count; echo later").await.unwrap().text(), "later\n");
    again.await.unwrap();
    assert_eq!(std::fs::read_to_string(daemon.work().join("count")).unwrap(), "ran\nran\n", "each ran once");
}

/// A command that removes its shim's socket, where it can, was taken for lost while it ran.
#[tokio::test]
async fn a_removed_socket_hides_nothing() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let exec = daemon.state().join("exec");
    let line = format!("echo before; rm {}/*/ctl; sleep 30", exec.display());
    assert_eq!(timed_out(&sandbox, &line).await.text(), "before\n");
    let id = ExecId::new("hidden").unwrap();
    let endless = Command { timeout_ms: 0, ..Command::shell(line) };
    sandbox.start_as(id.clone(), endless).await.unwrap();
    eventually("the socket is gone", || !exec.join("hidden/ctl").exists()).await;
    assert_eq!(sandbox.status(&id).await.unwrap().state, State::Running);
    assert!(sandbox.kill(&id).await.unwrap() >= 1);
    assert!(matches!(sandbox.status(&id).await.unwrap().state, State::Exited(exit) if exit.killed));
    nothing_is_left(&daemon).await;
}

/// Whoever kills a command without a time-out was never answered when the shim was stopped.
#[tokio::test]
async fn a_command_with_a_stopped_shim_can_be_seen_and_killed() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    let id = ExecId::new("stopped").unwrap();
    let line = "echo before; sleep 0.2; kill -STOP $PPID; touch stopped; sleep 30";
    sandbox.start_as(id.clone(), Command { timeout_ms: 0, ..Command::shell(line) }).await.unwrap();
    eventually("the shim is stopped", || daemon.work().join("stopped").exists()).await;
    let waiting = tokio::spawn({
        let (sandbox, id) = (sandbox.clone(), id.clone());
        async move { sandbox.attach(&id, 0).await?.wait().await }
    });
    let begun = Instant::now();
    let listed = sandbox.commands(true).await.unwrap();
    assert_eq!(listed[0].state, State::Running);
    assert!(listed[0].processes.iter().any(|process| process.name == "sleep"), "{listed:?}");
    assert!(sandbox.signal(&id, 18).await.unwrap() >= 1, "CONT, by podbayd itself");
    assert!(sandbox.kill(&id).await.unwrap() >= 1);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let info = waiting.await.unwrap().unwrap();
    assert!(
        matches!(info.state, State::Exited(exit) if exit.killed && exit.code == 137),
        "the one who waited is answered"
    );
    nothing_is_left(&daemon).await;
}

/// A podbayd that comes after another enforces the deadlines that it finds.
#[tokio::test]
async fn a_deadline_outlives_podbayd() {
    let mut daemon = Daemon::start();
    let id = ExecId::new("left").unwrap();
    let line = "echo before; sleep 0.2; kill -STOP $PPID; touch stopped; sleep 30";
    let command = Command { timeout_ms: 2000, ..brief(line) };
    daemon.sandbox().start_as(id.clone(), command).await.unwrap();
    eventually("the shim is stopped", || daemon.work().join("stopped").exists()).await;
    daemon.kill();
    // The stopped shim can't say who it is. The kernel does.
    daemon.restart();
    let info = daemon.sandbox().attach(&id, 0).await.unwrap().wait().await.unwrap();
    assert!(matches!(info.state, State::Exited(exit) if exit.timed_out), "{:?}", daemon.sandbox().status(&id).await);
    nothing_is_left(&daemon).await;
}

/// Connects to every shim's socket, asks for its command's status, and prints how many answered.
const ASK_ALL: &str = r#"
import glob, socket, struct, sys
asked = answered = 0
for path in glob.glob(sys.argv[1] + "/exec/*/ctl"):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    try:
        s.connect(path)
    except ConnectionRefusedError:
        continue  # its shim has gone
    asked += 1
    try:
        s.sendall(struct.pack(">I", 8) + b'"Status"')
        answered += len(s.recv(100)) > 0
    except (BrokenPipeError, ConnectionResetError):
        pass
print(asked, answered)
"#;

/// Any command could connect to any shim's socket: read, feed and signal other commands, and hold up their output.
#[tokio::test]
async fn a_shim_listens_to_nobody_but_podbayd() {
    let mut daemon = Daemon::start();
    let id = ExecId::new("victim").unwrap();
    let command = Command { timeout_ms: 60_000, ..brief("echo before; sleep 30") };
    daemon.sandbox().start_as(id.clone(), command).await.unwrap();
    let script = daemon.work().join("ask.py");
    std::fs::write(&script, ASK_ALL).unwrap();
    let line = format!("python3 {} {}", script.display(), daemon.state().display());
    let said = daemon.sandbox().run(line.as_str()).await.unwrap();
    assert_eq!(said.text(), "2 0\n", "its own shim and another's");
    // The next podbayd is listened to, and commands still aren't.
    daemon.kill();
    daemon.restart();
    assert!(matches!(daemon.sandbox().status(&id).await.unwrap().state, State::Running));
    let said = daemon.sandbox().run(line.as_str()).await.unwrap();
    assert_eq!(said.text(), "2 0\n");
    assert!(daemon.sandbox().signal(&id, 9).await.unwrap() > 0);
    // The signal is sent; its shim has yet to see the end.
    daemon.sandbox().attach(&id, 0).await.unwrap().wait().await.unwrap();
    nothing_is_left(&daemon).await;
}

/// A pipe as a command's record once blocked podbayd's only thread, and a link to /dev/zero ended it.
#[tokio::test]
async fn nothing_in_podbayds_directory_wedges_it() {
    let daemon = Daemon::start();
    let sandbox = daemon.sandbox();
    sandbox.run("echo kept").await.unwrap();
    let exec = daemon.state().join("exec");
    let line = format!(
        "cd {}; mkdir z y x w v u; mkfifo z/record z/ended z/output z/ctl; ln -s /dev/zero y/record; ln -s /dev/zero y/output; \
         truncate -s 1T x/record; truncate -s 1T x/output; mkdir w/record w/output w/ctl; ln -s / loop; \
         cp */record v/ 2>/dev/null; truncate -s 1T v/output; chmod 0 u; chmod 0 .; for i in $(seq 1 2000); do :; done",
        exec.display()
    );
    sandbox.run(line).await.unwrap();
    let begun = Instant::now();
    let listed = sandbox.commands(false).await.unwrap();
    assert!(listed.iter().any(|info| info.command == "echo kept"));
    for name in ["z", "y", "x", "w", "v", "u"] {
        let id = ExecId::new(name).unwrap();
        let _ = sandbox.status(&id).await;
        if let Ok(mut exec) = sandbox.attach(&id, 0).await {
            let _ = tokio::time::timeout(Duration::from_secs(5), exec.wait()).await.expect("it ends");
        }
        let _ = sandbox.kill(&id).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(sandbox.run("echo well").await.unwrap().text(), "well\n");
}
