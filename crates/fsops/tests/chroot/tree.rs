//! Random trees, paths and operations.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use podbay_proto::RawPath;
use proptest::prelude::*;

/// Stands in every file outside of the root, and in none inside.
pub(crate) const OUTSIDE: &str = "OUTSIDE";

pub(crate) fn raw(path: &Path) -> RawPath {
    path.as_os_str().as_bytes().into()
}

/// What a name is to become.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Dir,
    File,
    Link(Vec<u8>),
    HardLink(Vec<u8>),
    Fifo,
}

/// A tree: paths below the root, made in this order where that is possible.
#[derive(Debug, Clone)]
pub(crate) struct World(Vec<(Vec<u8>, Node)>);

#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Read(RawPath),
    Stat(RawPath),
    List(RawPath),
    Search(RawPath),
    Write(RawPath),
    Edit(RawPath),
    Delete(RawPath),
    Mkdir(RawPath),
    Move(RawPath, RawPath),
}

/// Few names, so that paths meet.
fn name() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        b"a".to_vec(),
        b"b".to_vec(),
        b"c".to_vec(),
        b"d".to_vec(),
        b"\xff\xfe".to_vec(),
        b"sp ace\n".to_vec(),
        b"-rf".to_vec(),
        "ü".into(),
    ])
}

fn below() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(name(), 1..4).prop_map(|names| names.join(&b'/'))
}

/// A path as someone hostile would write it.
fn path() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![6 => name(), 2 => Just(b"..".to_vec()), 1 => Just(b".".to_vec()), 1 => Just(b"".to_vec()), 1 => Just(b"outside".to_vec())];
    prop::collection::vec(part, 1..6).prop_map(|parts| [b"/", &parts.join(&b'/')[..]].concat())
}

fn target() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => below(),
        3 => (1..4usize, below()).prop_map(|(up, below)| [&b"../".repeat(up)[..], &below].concat()),
        1 => (1..5usize).prop_map(|up| [&b"../".repeat(up)[..], b"outside/secret"].concat()),
        1 => Just(b"..".to_vec()),
        1 => Just(b".".to_vec()),
        1 => below().prop_map(|below| [b"/", &below[..]].concat()),
        1 => Just(b"/".to_vec()),
        1 => Just(b"/proc/self/root".to_vec()),
    ]
}

fn node() -> impl Strategy<Value = Node> {
    prop_oneof![
        3 => Just(Node::Dir),
        4 => Just(Node::File),
        5 => target().prop_map(Node::Link),
        1 => below().prop_map(Node::HardLink),
        1 => Just(Node::Fifo),
    ]
}

pub(crate) fn world() -> impl Strategy<Value = World> {
    prop::collection::vec((below(), node()), 1..24).prop_map(World)
}

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let path = || path().prop_map(RawPath::from);
    prop_oneof![
        4 => path().prop_map(Operation::Read),
        2 => path().prop_map(Operation::Stat),
        2 => path().prop_map(Operation::List),
        1 => path().prop_map(Operation::Search),
        2 => path().prop_map(Operation::Write),
        1 => path().prop_map(Operation::Edit),
        1 => path().prop_map(Operation::Delete),
        1 => path().prop_map(Operation::Mkdir),
        1 => (path(), path()).prop_map(|(from, to)| Operation::Move(from, to)),
    ]
}

impl World {
    /// Makes the tree in `dir/root`, and something to protect in `dir/outside`.
    pub(crate) fn build(&self, dir: &Path) {
        let root = dir.join("root");
        std::fs::create_dir(&root).unwrap();
        for name in ["secret", "a", "b", "c/d"] {
            let path = dir.join("outside").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{OUTSIDE} {name}")).unwrap();
        }
        for (number, (below, node)) in self.0.iter().enumerate() {
            let path = root.join(OsStr::from_bytes(below));
            // A parent may be a file or a link by now. Then this one can't be made, which is fine; it mustn't be made
            // through a link, or the test itself would change the outside.
            if !plain_parents(&root, below) {
                continue;
            }
            let _ = match node {
                Node::Dir => std::fs::create_dir(&path),
                Node::File => {
                    std::fs::OpenOptions::new().write(true).create_new(true).open(&path).and_then(|mut file| {
                        std::io::Write::write_all(&mut file, format!("inside {number}\n").as_bytes())
                    })
                }
                Node::Link(target) => symlink(OsStr::from_bytes(target), &path),
                Node::HardLink(of) => match plain_parents(&root, of) {
                    true => std::fs::hard_link(root.join(OsStr::from_bytes(of)), &path),
                    false => Ok(()),
                },
                Node::Fifo => rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).map_err(Into::into),
            };
        }
    }
}

/// Makes the directories above a path, unless something else is in the way.
fn plain_parents(root: &Path, below: &[u8]) -> bool {
    let mut dir = root.to_owned();
    let names: Vec<&[u8]> = below.split(|&byte| byte == b'/').collect();
    for name in &names[..names.len() - 1] {
        dir.push(OsStr::from_bytes(name));
        let _ = std::fs::create_dir(&dir);
        if !std::fs::symlink_metadata(&dir).is_ok_and(|data| data.is_dir()) {
            return false;
        }
    }
    true
}

/// Every path below a directory and the content of its files.
pub(crate) fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if std::fs::symlink_metadata(&path).unwrap().is_dir() {
            all.extend(snapshot(&path));
            all.insert(path, None);
        } else {
            all.insert(path.clone(), Some(std::fs::read(&path).unwrap()));
        }
    }
    all
}
