//! A full disk: commands run, and their outcome can be queried later.

use std::path::Path;
use std::process::Command as Process;

use podbay_client::files::Write;
use podbay_client::provider::{Provider, Wanted};
use podbay_client::{ErrorCode, Info, Sandbox, State};
use podbay_local::{JailLimits, Options};

use crate::harness::{Case, World, make, run};

pub(crate) const CASES: &[Case] = &[
    ("on a full disk outcomes are remembered", outcomes),
    ("output that has no room doesn't take the outcome's", output),
    ("on a disk that podbayd shares outcomes are remembered", shared),
];

/// A sandbox with a small disk.
fn small() -> Options {
    Options { limits: JailLimits { disk: Some(8 << 20), ..JailLimits::default() }, ..Options::default() }
}

/// The outcome of a command, queried after its shim has ended.
async fn later(sandbox: &Sandbox, info: &Info) -> i32 {
    let info = sandbox.status(&info.id).await.unwrap();
    match &info.state {
        State::Exited(exit) => exit.code,
        other => panic!("{other:?}"),
    }
}

/// Fills the disk while a command runs, and then runs more.
async fn fill(sandbox: &Sandbox) {
    let before = sandbox.start("while ! [ -e full ]; do sleep 0.05; done; exit 4").await.unwrap();
    let filled = sandbox.run("touch full.; cat /dev/zero > big 2>/dev/null; mv full. full; exit 3").await.unwrap();
    assert_eq!(filled.code(), Some(3), "{:?}", filled.info);
    sandbox.attach(&before.id, 0).await.unwrap().wait().await.unwrap();
    assert_eq!(later(sandbox, &filled.info).await, 3);
    assert_eq!(later(sandbox, &before).await, 4, "it ended on the full disk");
    for code in 10..40 {
        let output = sandbox.run(format!("echo x > more; exit {code}").as_str()).await.unwrap();
        assert_eq!(output.code(), Some(code));
        assert_eq!(later(sandbox, &output.info).await, code, "it began on the full disk");
    }
    let commands = sandbox.commands(false).await.unwrap();
    assert!(commands.len() >= 32 && commands.iter().all(|info| info.state != State::Lost), "{commands:?}");
    assert_eq!(sandbox.run("rm big; echo room again").await.unwrap().text(), "room again\n");
}

fn outcomes(world: &World) {
    // Without namespaces the disk is the host's, which must not be filled.
    if world.is_landlock() {
        return;
    }
    run(async {
        let local = world.local_with(small());
        let made = make(&local, &Wanted::default()).await;
        fill(&made.sandbox).await;
        assert!(local.delete(&made.id).await.unwrap());
    });
}

fn output(world: &World) {
    run(async {
        let local = world.local_with(small());
        let made = make(&local, &Wanted::default()).await;
        // Each log keeps up to 64 MiB, which is all the space that podbayd has here.
        for code in [5, 6] {
            let line = format!("head -c 100000000 /dev/zero; exit {code}");
            let printed = made.sandbox.run(line.as_str()).await.unwrap();
            assert_eq!((printed.code(), printed.info.output_bytes), (Some(code), 100_000_000), "{:?}", printed.info);
            assert!(printed.info.dropped_bytes > 0);
            assert_eq!(later(&made.sandbox, &printed.info).await, code);
        }
        let huge = made.sandbox.write(&Write::new("huge"), vec![0; 20 << 20]).await.unwrap_err();
        assert!(matches!(huge.code(), Some(ErrorCode::TooLarge | ErrorCode::NoSpace)), "{huge}");
        assert_eq!(made.sandbox.run("echo well").await.unwrap().code(), Some(0));
        assert!(local.delete(&made.id).await.unwrap());
    });
}

/// A small file system, unmounted on drop.
struct Disk(String);

impl Disk {
    fn mount(place: &Path) -> Self {
        let place = place.to_str().unwrap().to_owned();
        let options = ["-t", "tmpfs", "-o", "size=24m,mode=0711", "podbay-test", &place];
        assert!(Process::new("mount").args(options).status().unwrap().success());
        Self(place)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Also if a failed test has left a sandbox on it.
        let _ = Process::new("umount").args(["-l", &self.0]).status();
    }
}

/// Without a mount namespace, podbayd's state is on the same disk as the commands' files.
fn shared(world: &World) {
    if !(world.root && world.is_landlock()) {
        return;
    }
    let _disk = Disk::mount(&world.directory("h"));
    run(async {
        let local = world.local();
        let made = make(&local, &Wanted::default()).await;
        fill(&made.sandbox).await;
        assert!(local.delete(&made.id).await.unwrap());
    });
}
