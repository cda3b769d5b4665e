//! Commands that attack their shim or podbayd: deadlines hold, callers get an answer, and the sandbox survives.

use std::time::{Duration, Instant};

use podbay_client::provider::{Provider, Wanted};
use podbay_client::{Command, Sandbox, State};

use crate::harness::{Case, World, make, run};

pub(crate) const CASES: &[Case] = &[
    ("a command that stops its shim is ended in time", stopped_shim),
    ("stopping everything stops neither podbayd nor later commands", stop_all),
    ("no signal from inside ends the sandbox", signals_to_podbayd),
    ("nothing in podbayd's directory wedges it", wedges),
    ("a command can't put its oom_score_adj back where the supervisor may forbid it", oom_score),
];

async fn overdue(sandbox: &Sandbox, line: &str) {
    let begun = Instant::now();
    let command = Command { timeout_ms: 1_000, grace_ms: 300, ..Command::shell(line) };
    let output = sandbox.run(command).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{line}: {:?}", begun.elapsed());
    // A command may also end its shim; then nobody knows how it ended.
    let lost = output.info.state == State::Lost;
    assert!(lost || output.exit().is_some_and(|exit| exit.timed_out && exit.code == 124), "{line}: {:?}", output.info);
    assert_eq!(sandbox.commands(true).await.unwrap().len(), 0, "{line}");
    assert_eq!(sandbox.run("echo well").await.unwrap().text(), "well\n", "{line}");
}

/// `kill -STOP $PPID; sleep 30` defeated the timeout, and its caller waited forever.
fn stopped_shim(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        for line in [
            "sleep 0.2; kill -STOP $PPID; sleep 30",
            "sleep 0.2; setsid sh -c '(sleep 30 &) ; sleep 30' & kill -STOP $PPID; sleep 30",
            "sleep 0.2; kill -STOP $PPID; for i in 1 2 3 4; do (for j in $(seq 1 150); do (sleep 30 &); sleep 0.02; done) & done; sleep 30",
            "sleep 0.2; kill -KILL $PPID; sleep 30",
        ] {
            overdue(&made.sandbox, line).await;
        }
        assert!(local.delete(&made.id).await.unwrap());
    });
}

/// `kill -STOP -1` reaches shims and the zygote as well.
fn stop_all(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        // Without namespaces and as root the sandbox's user may have processes elsewhere, which Landlock keeps safe.
        overdue(&made.sandbox, "sleep 0.2; kill -STOP -1; sleep 30").await;
        assert!(local.delete(&made.id).await.unwrap());
    });
}

/// `kill 1` ended the sandbox.
fn signals_to_podbayd(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        let instance = made.sandbox.hello().await.unwrap().instance;
        // podbayd is the zygote's parent; with namespaces also the first process.
        let line = "parent() { sed 's/.*) //' /proc/$1/stat | cut -d ' ' -f 2; }; daemon=$(parent $(parent $PPID)); \
                    for signal in $(seq 1 64); do [ $signal = 9 ] || [ $signal = 19 ] || kill -$signal $daemon 2>/dev/null; done; \
                    [ -e /proc/$daemon ] && echo alive";
        assert_eq!(made.sandbox.run(line).await.unwrap().text(), "alive\n");
        if !world.is_landlock() {
            made.sandbox.run("kill -9 1; kill -STOP 1; kill 1; kill -INT 1; kill -HUP 1").await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(made.sandbox.run("echo well").await.unwrap().text(), "well\n");
        assert_eq!(made.sandbox.hello().await.unwrap().instance, instance);
        assert!(local.delete(&made.id).await.unwrap(), "the supervisor can still end it");
    });
}

/// A pipe in place of a record blocked podbayd's only thread, and a link to /dev/zero ended the sandbox.
fn wedges(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        let first = made.sandbox.run("echo kept").await.unwrap();
        let exec =
            std::path::Path::new(first.info.log.to_str().unwrap()).parent().unwrap().parent().unwrap().to_owned();
        // Where podbayd's directory is protected, this fails, which is just as good.
        let line = format!(
            "cd {} && mkdir z y x; mkfifo z/record z/output z/ended z/ctl; ln -s /dev/zero y/record; ln -s /dev/zero y/output; \
             truncate -s 1T x/record; chmod 0 z .; flock -x . sleep 5 & flock -x .. sleep 5 & true",
            exec.display()
        );
        made.sandbox.run(Command { timeout_ms: 5_000, ..Command::shell(line) }).await.unwrap();
        let begun = Instant::now();
        let listed = made.sandbox.commands(false).await.unwrap();
        assert!(listed.iter().any(|info| info.command == "echo kept"), "{listed:?}");
        assert_eq!(made.sandbox.run("echo well").await.unwrap().text(), "well\n");
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        assert!(local.delete(&made.id).await.unwrap());
    });
}

/// Commands have 1000, so that the kernel kills them before podbayd when memory runs out; but they could set it to 0 again.
fn oom_score(world: &World) {
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        // The shim sets it right after the start.
        let line = "sleep 0.5; cat /proc/$$/oom_score_adj; echo 0 > /proc/$$/oom_score_adj; cat /proc/$$/oom_score_adj";
        let output = made.sandbox.run(line).await.unwrap();
        let text = String::from_utf8(output.stdout()).unwrap();
        let scores: Vec<i32> = text.lines().map(|line| line.parse().unwrap()).collect();
        // Without namespaces, neither shim nor command can write there.
        let set = if world.is_landlock() { 0 } else { 1000 };
        assert_eq!(scores.first(), Some(&set), "{:?}", output.text());
        // Without CAP_SYS_RESOURCE, the kernel only keeps a command from going below podbayd's own value.
        let least = if may_set_bound() { set } else { 0 };
        assert!(scores.len() == 2 && scores[1] >= least, "{:?}", output.text());
        assert!(local.delete(&made.id).await.unwrap());
    });
}

/// Whether this process, and so the supervisor, may set the lower bound of `oom_score_adj`.
fn may_set_bound() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(held.trim(), 16).unwrap() >> 24 & 1 == 1
}
