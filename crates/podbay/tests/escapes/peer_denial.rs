//! Attacks on other sandboxes of the same caller.

use podbay::{Command, State};

use crate::attack::{Attack, Class::PeerDenial, Pending, around};
use crate::site::Site;

pub(crate) const ATTACKS: &[Attack] = &[around(
    "kill-the-peer",
    PeerDenial,
    "SIGKILL to every process that can be reached, beside another sandbox of the same user",
    kill_peer,
)];

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
            other => Err(format!("the peer's command runs, podbayd is the same, works: {other:?}")),
        }
    })
}
