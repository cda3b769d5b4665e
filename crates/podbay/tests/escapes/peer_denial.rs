//! Attacks on other sandboxes of the same caller.

use podbay::{Command, State};

use crate::attack::{Attack, Class::PeerDenial, Fault, Pending, around, verdict};
use crate::site::Site;

pub(crate) const ATTACKS: &[Attack] = &[
    around(
        "kill-the-peer",
        PeerDenial,
        "SIGKILL to every reachable process, next to another sandbox of the same user",
        kill_peer,
    ),
    around(
        "peers-socket",
        PeerDenial,
        "Commands run in another sandbox of the same user, through its podbayd's socket",
        peers_socket,
    ),
];

/// The peer's socket is looked for wherever the host keeps sandboxes, and among the abstract and bound names of the network
/// namespace. The attacker's own podbayd hangs up on it: row `podbayds-sockets`.
fn peers_socket(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let (one, other) = (site.make().await?, site.make().await?);
        let home = site.scratch.join("h");
        let program = format!("HOME = {home:?}\n{SOCKETS}");
        let loot = site.loot(&one.sandbox, &program).await;
        crate::sandbox_denial::works(&other.sandbox).await?;
        site.end(one).await?;
        site.end(other).await?;
        verdict(loot?)
    })
}

const SOCKETS: &str = r#"
import stat
found = set()
for start in [HOME, "/proc/1/root" + HOME]:
    for directory, names, files in os.walk(start):
        for file in files:
            path = os.path.join(directory, file)
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                found.add(path)
try:
    lines = open("/proc/net/unix").read().splitlines()[1:]
except OSError:
    lines = []
found |= {line.split()[7] for line in lines if len(line.split()) > 7 and HOME in line}
for path in found:
    attempt(path, lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, path))
"#;

fn kill_peer(site: &Site) -> Pending<'_> {
    Box::pin(async {
        let (one, other) = (site.make().await?, site.make().await?);
        let text = |error: podbay::Error| error.to_string();
        let running = other.sandbox.start("echo $$; exec sleep 1000").await.map_err(text)?;
        let instance = other.sandbox.hello().await.map_err(text)?.instance;
        // The host's numbers of the peer's processes are guessed: all of them.
        let all = "kill -KILL -1; for pid in $(seq 2 40000); do kill -KILL $pid; done 2>/dev/null";
        let _ = one.sandbox.run(Command { timeout_ms: 10_000, ..Command::shell(all) }).await;
        let after = other.sandbox.status(&running.id).await.map_err(text)?;
        let same = other.sandbox.hello().await.map_err(text)?.instance == instance;
        let works = other.sandbox.run("echo works").await.map_err(text)?.text() == "works\n";
        // The attacker's own sandbox may have been ended by it where its PID 1 is the image's.
        let _ = site.end(one).await;
        site.end(other).await?;
        match (matches!(after.state, State::Running), same, works) {
            (true, true, true) => Ok(()),
            other => Err(Fault::Broken(format!("the peer's command runs, podbayd is the same, works: {other:?}"))),
        }
    })
}
