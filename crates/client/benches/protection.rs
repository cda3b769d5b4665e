//! What keeping commands away from podbayd costs: a command and an operation, with the Landlock domain and the system-call
//! filter and without, in one run.
//!
//! There is no switch for this: podbayd puts nothing around its commands where privileges may be gained (`no_new_privs` isn't
//! set), so that decides. podbayd asks who has connected once per connection in either case; what that takes is in the
//! rows of new connections, and operations pay nothing for it.
#![allow(clippy::unwrap_used, missing_docs, reason = "this is a benchmark")]

mod measure;

use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use measure::{Samples, Table, show};
use podbay_client::files::{Read, Stat, Write};
use podbay_client::{Sandbox, UnixChannel};

/// The most that the protection may add to the time of a command.
const COMMAND: Duration = Duration::from_micros(150);
/// The most that it may add to the time of an operation.
const OPERATION: Duration = Duration::from_micros(20);

/// Whom podbayd runs as where this is root: a user who can't write beside podbayd's directory, so that it is protected.
const NOBODY: u32 = 65_534;

struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
}

impl Daemon {
    fn start(protected: bool) -> Self {
        let root = std::fs::metadata("/proc/self").unwrap();
        let root = std::os::unix::fs::MetadataExt::uid(&root) == 0;
        let above = if root { Path::new("/run") } else { Path::new("/tmp") };
        let dir = tempfile::Builder::new().prefix("pb-protection-").tempdir_in(above).unwrap();
        let (program, state, work) = (dir.path().join("podbayd"), dir.path().join("state"), dir.path().join("work"));
        std::fs::write(&program, podbay_embed::daemon(std::env::consts::ARCH).unwrap()).unwrap();
        let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        open(&program);
        open(dir.path());
        for path in [&state, &work] {
            std::fs::create_dir(path).unwrap();
            if root {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let mut setpriv = Command::new("setpriv");
        if root {
            setpriv.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into()]);
        }
        if protected {
            setpriv.arg("--no-new-privs");
        }
        let (mut ready, theirs) = std::io::pipe().unwrap();
        setpriv.arg(program).args(["serve", "--ready-fd", "1", "--state"]).arg(state).arg("--workdir").arg(work);
        let child = setpriv.stdin(Stdio::null()).stdout(theirs).spawn().unwrap();
        // The pipe's other end is in the command until it is dropped.
        drop(setpriv);
        ready.read_exact(&mut [0]).unwrap();
        Self { child, dir }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("state/podbayd.sock")
    }

    fn sandbox(&self) -> Sandbox {
        Sandbox::new(UnixChannel::new(self.socket()))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What was measured without and with protection.
struct Compared {
    without: Samples,
    with: Samples,
    /// The median of what protection adds to a measurement compared with its neighbour: on a busy machine the medians of each side
    /// drift further apart than that.
    added: Duration,
}

/// Measures both in turn, so that whatever else the machine does hits both, and each as often first as second.
async fn in_turn<F: Future>(count: usize, mut work: impl FnMut(bool) -> F) -> Compared {
    let mut times = [Vec::with_capacity(count), Vec::with_capacity(count)];
    for round in 0..count + 20 {
        for protected in [round % 2 == 0, round % 2 != 0] {
            let begun = Instant::now();
            work(protected).await;
            if round >= 20 {
                times[usize::from(protected)].push(begun.elapsed());
            }
        }
    }
    let nanos = |time: &Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
    let mut added: Vec<i128> =
        times[0].iter().zip(&times[1]).map(|(without, with)| nanos(with) - nanos(without)).collect();
    added.sort_unstable();
    let added = Duration::from_nanos(u64::try_from(added[added.len() / 2]).unwrap_or(0));
    let [without, with] = times.map(Samples::from);
    Compared { without, with, added }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let program = podbay_embed::daemon(std::env::consts::ARCH).unwrap();
    let switch = b"PODBAY_LANDLOCK_ABI";
    assert!(!program.windows(switch.len()).any(|window| window == switch), "this isn't the podbayd of a release");
    let daemons = [Daemon::start(false), Daemon::start(true)];
    let [open, closed] = [daemons[0].sandbox(), daemons[1].sandbox()];
    let in_force = |protection: &podbay_client::ProtectionReport| {
        protection
            .protections
            .iter()
            .filter(|protection| protection.in_force)
            .map(|protection| format!("{:?}", protection.what))
            .collect::<Vec<_>>()
    };
    let (bare, protected) = (open.protection().await.unwrap(), closed.protection().await.unwrap());
    assert!(bare.missing().count() > protected.missing().count(), "nothing to compare: {bare:?} {protected:?}");
    println!("\nWithout: {}. With: {}.", in_force(&bare).join(", "), in_force(&protected).join(", "));
    for sandbox in [&open, &closed] {
        sandbox.write(&Write::new("file"), "line of text\n".repeat(300)).await.unwrap();
    }
    let of = |protected: bool| if protected { &closed } else { &open };

    let table = Table::times("Commands");
    let command =
        in_turn(3000, |protected| async move { assert!(of(protected).run("true").await.unwrap().success()) }).await;
    table.row("`true`, without", &command.without);
    table.row("**`true`, with**", &command.with);
    let files = "for i in 1 2 3 4 5 6 7 8 9 10; do : < /etc/hostname; done";
    let opening =
        in_turn(1000, |protected| async move { assert!(of(protected).run(files).await.unwrap().success()) }).await;
    table.row("a shell that opens ten files, without", &opening.without);
    table.row("a shell that opens ten files, with", &opening.with);

    let table = Table::times("Operations");
    let read =
        in_turn(3000, |protected| async move { drop(of(protected).read(&Read::new("file")).await.unwrap()) }).await;
    table.row("read, without", &read.without);
    table.row("**read, with**", &read.with);
    let stat =
        in_turn(3000, |protected| async move { drop(of(protected).stat(&Stat::new("file")).await.unwrap()) }).await;
    table.row("stat, without", &stat.without);
    table.row("**stat, with**", &stat.with);
    let connect = in_turn(300, |protected| {
        let sandbox = daemons[usize::from(protected)].sandbox();
        async move { drop(sandbox.hello().await.unwrap()) }
    })
    .await;
    table.row("a new connection, without", &connect.without);
    table.row("a new connection, with", &connect.with);

    let table = Table::figures("Added, median of neighbouring pairs");
    let mut late = Vec::new();
    for (what, compared, bound) in
        [("a command", &command, COMMAND), ("a read", &read, OPERATION), ("a stat", &stat, OPERATION)]
    {
        table.figure(&format!("to {what} (at most {})", show(bound)), show(compared.added));
        if compared.added > bound {
            late.push(what);
        }
    }
    assert!(late.is_empty(), "more than promised is added to {late:?}");
}
