//! Operations while someone swaps directories for links.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use podbay_fsops::{Cancel, Files, Settings};
use podbay_proto::files::*;
use rustix::fs::{Mode, OFlags, RenameFlags};

use crate::tree::{OUTSIDE, raw, snapshot};

/// How often operations succeeded and how often they were refused. Panics when one of them got outside.
pub(crate) fn run(time: Duration) -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let (root, outside) = (dir.join("root"), dir.join("outside"));
    for path in [root.join("d/e"), outside.join("e")] {
        std::fs::create_dir_all(path).unwrap();
    }
    std::fs::write(root.join("d/e/f"), "inside").unwrap();
    std::fs::write(root.join("d/f"), "inside").unwrap();
    std::fs::write(outside.join("e/f"), OUTSIDE).unwrap();
    std::fs::write(outside.join("f"), OUTSIDE).unwrap();
    // Three ways out, each at another place of the paths below.
    std::os::unix::fs::symlink("../outside", root.join("d-link")).unwrap();
    std::os::unix::fs::symlink("../../outside/e", root.join("d/e-link")).unwrap();
    std::os::unix::fs::symlink("../../outside/f", root.join("d/f-link")).unwrap();
    let before = snapshot(&outside);
    let stop = AtomicBool::new(false);
    let (mut done, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        // By open directories, so that this side itself can never reach the outside.
        let open = |path: &Path| rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let (top, inner) = (open(&root), open(&root.join("d")));
        for (dir, one, other) in [(top, "d", "d-link"), (inner, "e", "e-link"), (open(&root.join("d")), "f", "f-link")]
        {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // There is nothing to swap while an operation replaces the one or the other.
                    let _ = rustix::fs::renameat_with(&dir, one, &dir, other, RenameFlags::EXCHANGE);
                }
            });
        }
        let ends = Instant::now() + time;
        let files = Files::new(Settings::default());
        let confined = Scope { root: Some(raw(&root)), virtual_paths: true, ..Scope::default() };
        // The same without a root: only rules keep it in.
        let ruled = Scope {
            workdir: Some(raw(&root)),
            allow_prefixes: vec![raw(&root)],
            rules_for_reads: true,
            ..Scope::default()
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while Instant::now() < ends {
                for scope in [&confined, &ruled] {
                    for (number, outcome) in round(&files, scope).into_iter().enumerate() {
                        match outcome {
                            Some(bytes) => {
                                done += 1;
                                let text = String::from_utf8_lossy(&bytes);
                                assert!(
                                    !text.contains(OUTSIDE),
                                    "operation {number} read from outside, in {scope:?}: {text}"
                                );
                            }
                            None => refused += 1,
                        }
                    }
                }
                assert_eq!(snapshot(&outside), before, "the outside was changed");
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    assert_eq!(snapshot(&outside), before, "the outside was changed");
    assert!(done > 0 && refused > 0, "nothing was tried: {done} done, {refused} refused");
    (done, refused)
}

/// One of each operation, and what those that read have read.
fn round(files: &Files, scope: &Scope) -> Vec<Option<Vec<u8>>> {
    let none = Cancel::new();
    let mut outcomes = Vec::new();
    for path in ["d/f", "d/e/f"] {
        let request = Read { scope: scope.clone(), ..Read::new(path) };
        // Often, for the moment between looking and opening is short.
        for _ in 0..400 {
            outcomes.push(files.read(&request).ok().map(|(_, content)| content.into_bytes().unwrap()));
        }
        let request = Write { scope: scope.clone(), ..Write::new(path) };
        let written = files.start_write(&request).and_then(|mut pending| {
            pending.write(b"inside")?;
            pending.commit()
        });
        outcomes.push(written.ok().map(|_| Vec::new()));
        let (request, payload) = Edit::new(path, b"inside", b"inside");
        outcomes.push(files.edit(&Edit { scope: scope.clone(), ..request }, &payload).ok().map(|_| Vec::new()));
        let request = Write { scope: scope.clone(), ..Write::new(format!("{path}-new/x")) };
        let written = files.start_write(&request).and_then(podbay_fsops::PendingWrite::commit);
        outcomes.push(written.ok().map(|_| Vec::new()));
        let request = Delete { scope: scope.clone(), ..Delete::new(format!("{path}-new")) };
        outcomes.push(files.delete(&request, &none).ok().map(|_| Vec::new()));
    }
    let request = Grep { scope: scope.clone(), ..Grep::new(OUTSIDE) };
    outcomes.push(
        files.grep(&request, &none).ok().map(|output| if output.count > 0 { OUTSIDE.into() } else { Vec::new() }),
    );
    outcomes
}
