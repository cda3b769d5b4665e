//! Attacks on the sandbox itself, and on whoever waits for it.

use std::time::{Duration, Instant};

use podbay::{Command, Sandbox};

use crate::attack::{Attack, Class::SandboxDenial, Fault, Pending, Step, around};
use crate::site::Site;

pub(crate) const ATTACKS: &[Attack] = &[
    around(
        "kill-everything",
        SandboxDenial,
        "SIGKILL to every reachable process: podbayd must survive and keep serving",
        kill_everything,
    ),
    around(
        "kill-the-zygote",
        SandboxDenial,
        "The process that starts commands is killed: the next one is as confined as the first",
        zygote,
    ),
    around("endless-output", SandboxDenial, "Endless output, to fill the caller's memory or the disk", output),
    around(
        "refuse-to-end",
        SandboxDenial,
        "A command that ignores TERM and leaves processes in sessions of their own: the time-out ends all of them",
        refuse,
    ),
    around(
        "unremovable-files",
        SandboxDenial,
        "Directories without permissions, 300 deep and with odd names: deleting the sandbox removes them",
        unremovable,
    ),
    around(
        "hostile-names",
        SandboxDenial,
        "File names with line breaks, escape sequences and bytes that aren't UTF-8: listings stay intact",
        names,
    ),
];

pub(crate) async fn run(sandbox: &Sandbox, command: impl Into<Command>) -> Step<podbay::Output> {
    sandbox.run(command).await.map_err(|error| error.to_string())
}

/// The sandbox still works.
pub(crate) async fn works(sandbox: &Sandbox) -> Step {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match sandbox.run("echo works").await {
            Ok(output) if output.text() == "works\n" => return Ok(()),
            // What was asked for while something was dying may get lost.
            _ if Instant::now() < until => tokio::time::sleep(Duration::from_millis(50)).await,
            other => return Err(format!("no command runs any more: {other:?}")),
        }
    }
}

fn kill_everything(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let before = made.sandbox.hello().await.map_err(|error| error.to_string())?.instance;
        // How this ends is of no interest: it may kill its own shim.
        let _ = made.sandbox.run(Command { timeout_ms: 5_000, ..Command::shell("kill -KILL -1") }).await;
        works(&made.sandbox).await?;
        let after = made.sandbox.hello().await.map_err(|error| error.to_string())?.instance;
        site.end(made).await?;
        if before == after { Ok(()) } else { Err(Fault::Broken("podbayd was killed".to_owned())) }
    })
}

fn zygote(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let confined = "grep -E 'Seccomp:|NoNewPrivs|CapEff' /proc/self/status";
        let before = run(&made.sandbox, confined).await?.text().into_owned();
        // A command's parent is its shim, whose parent is the zygote.
        let line = "kill -KILL $(sed 's/.*) //' /proc/$PPID/stat | cut -d ' ' -f 2)";
        let _ = made.sandbox.run(line).await;
        works(&made.sandbox).await?;
        let after = run(&made.sandbox, confined).await?.text().into_owned();
        site.end(made).await?;
        if before == after {
            Ok(())
        } else {
            Err(Fault::Broken(format!("confined as {after:?} and not as {before:?}")))
        }
    })
}

fn output(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let endless = Command { timeout_ms: 3_000, grace_ms: 500, ..Command::shell("exec yes $(seq 1000)") };
        let output = made.sandbox.run_capped(endless, 1 << 20).await.map_err(|error| error.to_string())?;
        works(&made.sandbox).await?;
        let log = format!("stat -c %s {} || echo 0", output.info.log);
        let kept: u64 = run(&made.sandbox, log.as_str()).await?.text().trim().parse().unwrap_or(u64::MAX);
        site.end(made).await?;
        match (output.bytes().len(), output.exit().map(|exit| exit.timed_out)) {
            (bytes, _) if bytes > 1 << 20 => Err(Fault::Broken(format!("the caller got {bytes} bytes"))),
            (_, Some(true)) if kept <= 64 << 20 => Ok(()),
            (_, timed_out) => Err(Fault::Broken(format!("the log has {kept} bytes; timed out: {timed_out:?}"))),
        }
    })
}

fn refuse(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let script = "trap '' TERM INT HUP; (setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 0.1; done' &) ; \
                      while :; do sleep 0.1; done";
        let begun = Instant::now();
        let output = run(&made.sandbox, Command { timeout_ms: 1_000, grace_ms: 500, ..Command::shell(script) }).await?;
        let took = begun.elapsed();
        let left = run(&made.sandbox, "kill -0 $(cat pid) 2>/dev/null && echo alive; true").await?.text().into_owned();
        site.end(made).await?;
        match output.exit().map(|exit| exit.timed_out) {
            Some(true) if took < Duration::from_secs(15) && left.is_empty() => Ok(()),
            other => Err(Fault::Broken(format!("timed out: {other:?} after {took:?}; left: {left:?}"))),
        }
    })
}

fn unremovable(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let script = "mkdir -p a/b && touch a/b/c && cd a && mkdir -m 0 closed && mkdir -m 0500 d && touch \"$(printf 'x\\ny')\" && \
                      i=0; while [ $i -lt 300 ]; do mkdir d && cd d || break; i=$((i + 1)); done; umask 777; mkdir e";
        run(&made.sandbox, script).await?;
        let id = made.id.clone();
        site.end(made).await?;
        let left = ["sandboxes", "new"].map(|place| site.scratch.join("h").join(place));
        let left: Vec<_> = left
            .iter()
            .flat_map(|place| std::fs::read_dir(place).into_iter().flatten().flatten())
            .filter(|entry| entry.file_name().to_string_lossy().contains(&id))
            .map(|entry| entry.path())
            .collect();
        if left.is_empty() { Ok(()) } else { Err(Fault::Broken(format!("left behind: {left:?}"))) }
    })
}

fn names(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let made = site.make().await?;
        let program = r#"
names = [b"line\nbreak", b"\x1b[31mred\x1b]0;title\x07", b"\xff\xfe", b"-rf", b" ", b"'\"$(id)`id`", b"x" * 255, b"{a,b}*?[", "\u202etxt.exe".encode()]
os.mkdir("names")
for name in names:
    open(os.path.join(b"names", name), "w").close()
"#;
        let loot = site.loot(&made.sandbox, program).await?;
        let listed = made.sandbox.ls(&podbay::files::Ls::new("names")).await.map_err(|error| error.to_string())?;
        let found = made.sandbox.glob(&podbay::files::Glob::new("names/*")).await.map_err(|error| error.to_string())?;
        let mut unread = Vec::new();
        for entry in &listed.entries {
            if made.sandbox.read(&podbay::files::Read::new(entry.path.clone())).await.is_err() {
                unread.push(entry.path.clone());
            }
        }
        works(&made.sandbox).await?;
        site.end(made).await?;
        match (listed.entries.len(), found.matches.len(), unread.as_slice(), loot.as_slice()) {
            (9, 9, [], []) => Ok(()),
            other => Err(Fault::Broken(format!("{other:?}"))),
        }
    })
}
