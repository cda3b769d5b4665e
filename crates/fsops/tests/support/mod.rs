//! A directory to work in, and short forms of the requests.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use podbay_fsops::{Cancel, Files, Settings};
use podbay_proto::files::*;
use podbay_proto::{RawPath, Result};

pub struct Fixture {
    pub dir: tempfile::TempDir,
    pub files: Files,
}

pub fn raw(path: impl AsRef<Path>) -> RawPath {
    path.as_ref().as_os_str().as_bytes().into()
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(|_| Settings::default())
    }

    /// The working directory is always the fixture itself.
    pub fn with(settings: impl FnOnce(&Path) -> Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let files = Files::new(Settings { workdir: real.clone(), ..settings(&real) });
        Self { dir, files }
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(below)
    }

    /// Makes a file directly, with its directories.
    pub fn put(&self, below: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(below);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn get(&self, below: &str) -> Vec<u8> {
        std::fs::read(self.path(below)).unwrap()
    }

    pub fn link(&self, target: &str, below: &str) {
        let path = self.path(below);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    pub fn read(&self, request: &Read) -> Result<(ReadOutput, Vec<u8>)> {
        let (output, content) = self.files.read(request)?;
        Ok((output, content.into_bytes().unwrap()))
    }

    pub fn write(&self, request: &Write, content: &[u8]) -> Result<WriteOutput> {
        let mut pending = self.files.start_write(request)?;
        for chunk in content.chunks(7) {
            pending.write(chunk)?;
        }
        pending.commit()
    }

    pub fn edit(&self, path: &str, old: &str, new: &str) -> Result<EditOutput> {
        let (request, payload) = Edit::new(path, old.as_bytes(), new.as_bytes());
        self.files.edit(&request, &payload)
    }

    pub fn glob(&self, pattern: &str) -> Result<Vec<String>> {
        Ok(found(&self.files.glob(&Glob::new(pattern), &Cancel::new())?))
    }

    pub fn grep(&self, request: &Grep) -> Result<GrepOutput> {
        self.files.grep(request, &Cancel::new())
    }

    pub fn names(&self, below: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path(below))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

pub fn found(output: &GlobOutput) -> Vec<String> {
    output.matches.iter().map(|found| found.path.to_string()).collect()
}

/// `path:line:text`, the path below the start.
pub fn lines(output: &GrepOutput) -> Vec<String> {
    let start = format!("{}/", output.path);
    let of_file = |file: &FileMatches| {
        let path = file.path.to_string();
        let path = path.strip_prefix(&start).unwrap_or(&path).to_owned();
        file.lines.iter().map(move |line| format!("{path}:{}:{}", line.line, line.text)).collect::<Vec<_>>()
    };
    output.files.iter().flat_map(of_file).collect()
}

/// Runs as an ordinary user, in a thread of its own when this is root.
pub fn as_ordinary_user(fixture: &Fixture, run: impl FnOnce() + Send) {
    if !rustix::process::geteuid().is_root() {
        return run();
    }
    // The fixture itself is root's; the user has to get there.
    std::fs::set_permissions(fixture.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::thread::scope(|scope| {
        let done = scope.spawn(|| {
            rustix::thread::set_thread_groups(&[]).unwrap();
            let gid = rustix::fs::Gid::from_raw(65534);
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            let uid = rustix::fs::Uid::from_raw(65534);
            // Of this thread only: the others stay what they are.
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            run();
        });
        if let Err(panic) = done.join() {
            std::panic::resume_unwind(panic);
        }
    });
}
