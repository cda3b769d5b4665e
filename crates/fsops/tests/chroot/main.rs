//! Confined operations against a real chroot, over random trees.
//!
//! Whatever a confined operation reads has to be what a process in a chroot reads at the same path, or the operation
//! fails; and nothing outside of the root may ever change. The second half does the same while another thread swaps directories for
//! links to the outside.
//!
//! Names of incidents that this covers: CVE-2025-53109 and -53110 (links, prefixes compared as text), CVE-2026-13201 (a link at the
//! end of a path), GHSA-3xpw-36v7-2cmg (owner changed through a link).
#![allow(clippy::unwrap_used)]

mod oracle;
mod race;
mod tree;

use std::path::Path;

use oracle::Oracle;
use podbay_fsops::{Cancel, Files, Settings};
use podbay_proto::files::*;
use podbay_proto::{ErrorCode, RawPath};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tree::{Operation, World};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, helper, root] = &arguments[..]
        && helper == oracle::HELPER
    {
        return oracle::serve(Path::new(root));
    }
    // What `cargo test` asks of every test program.
    if arguments.iter().any(|argument| argument == "--list") {
        return println!("chroot: test");
    }
    let probe = tempfile::tempdir().unwrap();
    if let Err(error) = Oracle::start(probe.path()) {
        let required = std::env::var("PODBAY_REQUIRE").is_ok_and(|what| what == "all");
        assert!(!required, "the comparison with a chroot was required and can't be made: {error}");
        return println!("skipped: no chroot can be had here ({error})");
    }
    let cases = 192;
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    if let Err(error) = runner
        .run(&(tree::world(), prop::collection::vec(tree::operation(), 1..24)), |(world, operations)| {
            compare(&world, &operations)
        })
    {
        panic!("{error}");
    }
    println!("{cases} random trees agree with a chroot");
    let (done, refused) = race::run(std::time::Duration::from_secs(2));
    println!("{done} operations done and {refused} refused while directories were swapped for links");
}

/// Runs the operations one after the other, each compared with the chroot.
fn compare(world: &World, operations: &[Operation]) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    world.build(dir.path());
    let root = dir.path().join("root");
    let before = tree::snapshot(&dir.path().join("outside"));
    let mut oracle = Oracle::start(&root).unwrap();
    let files = Files::new(Settings::default());
    let scope = Scope { root: Some(tree::raw(&root)), virtual_paths: true, ..Scope::default() };
    for operation in operations {
        check(&files, &scope, &mut oracle, operation)?;
        prop_assert_eq!(
            &tree::snapshot(&dir.path().join("outside")),
            &before,
            "{:?} changed something outside",
            operation
        );
    }
    Ok(())
}

fn check(files: &Files, scope: &Scope, oracle: &mut Oracle, operation: &Operation) -> Result<(), TestCaseError> {
    let none = Cancel::new();
    let scope = scope.clone();
    match operation {
        Operation::Read(path) => {
            let truth = oracle.read(path);
            let request = Read {
                scope: scope.clone(),
                bytes: Some(ByteRange { start: 0, length: None }),
                ..Read::new(path.clone())
            };
            let ours = files.read(&request).map(|(_, content)| content.into_bytes().unwrap());
            agree(path, ours, truth.clone())?;
            let ours = files.open_download(&Download { scope, ..Download::new(path.clone()) }).map(|(_, mut file)| {
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
                bytes
            });
            agree(path, ours, truth)
        }
        Operation::Stat(path) => {
            let ours = files.stat(&Stat { scope, ..Stat::new(path.clone()) });
            agree(path, ours.map(|stat| u64::from(stat.entry.kind == Kind::Dir)), oracle.is_dir(path))
        }
        Operation::List(path) => {
            let ours = files.ls(&Ls { scope: scope.clone(), ..Ls::new(path.clone()) }, &none);
            let names = |entries: Vec<Entry>| {
                let last = |path: &RawPath| path.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap().to_vec();
                entries.iter().map(|entry| last(&entry.path)).collect::<Vec<_>>()
            };
            agree(path, ours.map(|output| names(output.entries)), oracle.list(path))?;
            let ours = files.tree(&Tree { scope, max_depth: Some(1), ..Tree::new(path.clone()) }, &none);
            let names = |output: TreeOutput| {
                output.entries.into_iter().map(|entry| entry.path.into_bytes()).collect::<Vec<_>>()
            };
            agree(path, ours.map(names), oracle.list(path))
        }
        Operation::Search(path) => {
            let request = Grep { scope: scope.clone(), path: Some(path.clone()), ..Grep::new(tree::OUTSIDE) };
            let count = files.grep(&request, &none).map_or(0, |output| output.count);
            prop_assert_eq!(count, 0, "a search of {:?} saw the outside", path);
            let request = Glob { scope, path: Some(path.clone()), dots: true, ..Glob::new("*") };
            for found in files.glob(&request, &none).map_or(Vec::new(), |output| output.matches) {
                let found = RawPath::from([path.as_bytes(), b"/", found.path.as_bytes()].concat());
                prop_assert!(oracle.read(&found).is_ok(), "{:?} was found and isn't there in the chroot", found);
            }
            Ok(())
        }
        Operation::Write(path) => {
            let written = files.start_write(&Write { scope, ..Write::new(path.clone()) }).and_then(|mut pending| {
                pending.write(b"written")?;
                pending.commit()
            });
            if written.is_ok() {
                prop_assert_eq!(oracle.read(path), Ok(b"written".to_vec()), "written to {:?}", path);
            }
            Ok(())
        }
        Operation::Edit(path) => {
            let (request, payload) = Edit::new(path.clone(), b"inside", b"edited");
            let request = Edit { scope, ..request };
            let before = oracle.read(path);
            if files.edit(&request, &payload).is_ok() {
                let expected = String::from_utf8(before.unwrap()).unwrap().replacen("inside", "edited", 1);
                prop_assert_eq!(oracle.read(path), Ok(expected.into_bytes()), "edited {:?}", path);
            }
            Ok(())
        }
        Operation::Delete(path) => {
            let existed = oracle.exists(path);
            match files.delete(&Delete { scope, ..Delete::new(path.clone()) }, &none) {
                Ok(_) => prop_assert!(existed && !oracle.exists(path), "deleted {:?}", path),
                Err(error) => prop_assert!(error.code != ErrorCode::Internal, "{}", error),
            }
            Ok(())
        }
        Operation::Mkdir(path) => {
            if files.mkdir(&Mkdir { scope, ..Mkdir::new(path.clone()) }).is_ok() {
                prop_assert_eq!(oracle.is_dir(path), Ok(1), "made {:?}", path);
            }
            Ok(())
        }
        Operation::Move(from, to) => {
            let existed = oracle.exists(from);
            let request = Move { scope, overwrite: true, ..Move::new(from.clone(), to.clone()) };
            if files.mv(&request).is_ok() {
                // A new path that leads over the old one, by `..` or by the link that was moved, can't be followed any more.
                let end = to.as_bytes().iter().rposition(|byte| *byte == b'/').unwrap_or(0).max(1);
                let parent = RawPath::from(&to.as_bytes()[..end.min(to.as_bytes().len())]);
                let led_over_it =
                    memchr::memmem::find(to.as_bytes(), b"..").is_some() || oracle.is_dir(&parent) != Ok(1);
                let there = led_over_it || oracle.exists(to);
                prop_assert!(existed && there, "moved {:?} to {:?}", from, to);
            }
            Ok(())
        }
    }
}

/// A success has to be the chroot's; a failure has to be one there too, unless the way leads out or over an absolute link.
fn agree<T: PartialEq + std::fmt::Debug>(
    path: &RawPath,
    ours: podbay_proto::Result<T>,
    truth: Result<T, i32>,
) -> Result<(), TestCaseError> {
    match (ours, truth) {
        (Ok(ours), truth) => prop_assert_eq!(Ok(ours), truth, "at {:?}", path),
        (Err(error), _) if error.code == ErrorCode::EscapesRoot => {}
        (Err(error), truth) => prop_assert!(truth.is_err(), "at {:?}: {} and the chroot has {:?}", path, error, truth),
    }
    Ok(())
}
