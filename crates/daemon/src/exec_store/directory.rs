//! The directory of all commands, held open.
//!
//! Commands run as podbayd's own user, so nothing found here is trusted: directories and files are opened without following
//! links, only regular files are read, nothing blocks, and a mode that a command changed is restored.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use podbay_proto::RawPath;
use podbay_proto::exec::ExecId;
use podbay_proto::layout::EXEC_DIR;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::log::{self, Log};
use super::record::{ExecRecord, RECORD};

/// The shim's socket in a command's directory.
pub const SOCKET: &str = "ctl";

/// The script of a command that is too long for an argument, in its directory.
pub const SCRIPT: &str = "script";

/// How many entries are read at most; podbayd itself keeps fewer.
const MOST: usize = 1 << 17;

const PRIVATE: Mode = Mode::from_raw_mode(0o700);

/// The directory of all commands.
#[derive(Debug)]
pub struct Directory {
    state: OwnedFd,
    root: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens it in a state directory, and makes it if it is missing.
    ///
    /// # Errors
    /// When that fails.
    pub fn open(state: &Path) -> io::Result<Self> {
        let path = state.join(EXEC_DIR);
        let state = File::open(state)?.into();
        let _ = rustix::fs::fchmod(&state, PRIVATE);
        match rustix::fs::mkdirat(&state, EXEC_DIR, PRIVATE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let root = open_dir(&state, EXEC_DIR)?;
        Ok(Self { state, root, path })
    }

    /// The state directory.
    pub fn state(&self) -> &OwnedFd {
        &self.state
    }

    /// The path of a command's file, for users.
    pub fn path_of(&self, id: &ExecId, name: &str) -> PathBuf {
        self.path.join(id.as_str()).join(name)
    }

    /// The path of a command's log, for users.
    pub fn log_path(&self, id: &ExecId) -> RawPath {
        use std::os::unix::ffi::OsStrExt;
        RawPath::from(self.path_of(id, log::OUTPUT).as_os_str().as_bytes())
    }

    /// Makes a command's directory; nothing if it exists already.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn make(&self, id: &ExecId) -> io::Result<Option<OwnedFd>> {
        self.insist(None, || match rustix::fs::mkdirat(&self.root, id.as_str(), PRIVATE) {
            Ok(()) => open_dir(&self.root, id.as_str()).map(Some),
            Err(Errno::EXIST) => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// Opens a command's directory.
    ///
    /// # Errors
    /// When there is none.
    pub fn of(&self, id: &ExecId) -> io::Result<OwnedFd> {
        self.insist(Some(id), || open_dir(&self.root, id.as_str()))
    }

    /// Reads a command's record.
    ///
    /// # Errors
    /// When there is no valid one.
    pub fn record(&self, id: &ExecId) -> io::Result<ExecRecord> {
        ExecRecord::read(&self.file(id, RECORD, OFlags::RDONLY)?)
    }

    /// Opens a command's log.
    ///
    /// # Errors
    /// When there is none.
    pub fn log(&self, id: &ExecId) -> io::Result<Log> {
        Log::open(self.file(id, log::OUTPUT, OFlags::RDONLY)?, self.file(id, RECORD, OFlags::RDONLY)?)
    }

    /// Opens a regular file of a command.
    ///
    /// # Errors
    /// When it doesn't exist, or isn't a regular file.
    pub fn file(&self, id: &ExecId, name: &str, flags: OFlags) -> io::Result<File> {
        self.insist(Some(id), || open_file(&open_dir(&self.root, id.as_str())?, name, flags))
    }

    /// The ids of all commands.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub fn ids(&self) -> io::Result<Vec<ExecId>> {
        let mut ids = Vec::new();
        for entry in self.insist(None, || Dir::read_from(&self.root))?.take(MOST) {
            let entry = entry?;
            let id = entry.file_name().to_str().ok().and_then(|name| ExecId::new(name).ok());
            if !matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                continue;
            }
            ids.extend(id);
        }
        Ok(ids)
    }

    /// Removes a command's directory and what podbayd put into it.
    ///
    /// # Errors
    /// When something else is in it.
    pub fn remove(&self, id: &ExecId) -> io::Result<()> {
        let dir = self.of(id)?;
        for name in [log::OUTPUT, RECORD, SOCKET, SCRIPT] {
            match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                // A command may have put a directory there, which podbayd leaves alone.
                Err(error) => return Err(error.into()),
            }
        }
        Ok(rustix::fs::unlinkat(&self.root, id.as_str(), AtFlags::REMOVEDIR)?)
    }

    /// Restores the modes and tries again if a command took away podbayd's own permissions.
    fn insist<T>(&self, id: Option<&ExecId>, attempt: impl Fn() -> rustix::io::Result<T>) -> io::Result<T> {
        match attempt() {
            Err(Errno::ACCESS) => {
                // In a pod the state directory is a volume that may belong to root; what matters shows when it is tried again.
                for dir in [&self.state, &self.root] {
                    let _ = rustix::fs::fchmod(dir, PRIVATE);
                }
                if let Some(id) = id
                    && let Ok(dir) = restore(&self.root, id.as_str(), FileType::Directory, PRIVATE)
                {
                    for name in [log::OUTPUT, RECORD] {
                        let _ = restore(&dir, name, FileType::RegularFile, Mode::from_raw_mode(0o600));
                    }
                }
                Ok(attempt()?)
            }
            done => Ok(done?),
        }
    }
}

/// Restores the mode of what podbayd made. It may be closed to its owner, so it is held by its place alone (`O_PATH`), and what
/// was put there instead, such as a link to a file of somebody else's, is left as it is.
fn restore(at: impl AsFd, name: &str, kind: FileType, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let held = rustix::fs::openat(at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&held)?.st_mode) != kind {
        return Err(Errno::INVAL);
    }
    // fchmod refuses such a descriptor, and this link leads to what it holds and nowhere else.
    rustix::fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), mode)?;
    Ok(held)
}

fn open_dir(at: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// Makes a new file.
///
/// # Errors
/// When it exists or can't be made.
pub fn create(at: impl AsFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::from_raw_mode(0o600))?.into())
}

/// Opens a regular file and nothing else: neither a link nor a pipe, which would block podbayd.
fn open_file(at: impl AsFd, name: &str, flags: OFlags) -> rustix::io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(at, name, flags, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file.into()),
        _ => Err(Errno::INVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared() -> (tempfile::TempDir, Directory, ExecId) {
        let state = tempfile::tempdir().unwrap();
        let directory = Directory::open(state.path()).unwrap();
        let id = ExecId::new("z").unwrap();
        assert!(directory.make(&id).unwrap().is_some());
        assert!(directory.make(&id).unwrap().is_none(), "a command is started once");
        (state, directory, id)
    }

    /// A pipe in place of a record once kept podbayd waiting forever, and a link to /dev/zero took all of its memory.
    #[test]
    fn what_is_no_regular_file_is_not_read() {
        let (state, directory, id) = prepared();
        let record = state.path().join("exec/z/record");
        let made = |how: &str| {
            let _ = std::fs::remove_file(&record);
            let line = format!("{how} {}", record.display());
            assert!(std::process::Command::new("sh").args(["-c", &line]).status().unwrap().success());
        };
        for how in ["mkfifo", "ln -s /dev/zero", "ln -s /etc/passwd", "mkdir"] {
            made(how);
            assert!(directory.record(&id).is_err(), "{how}");
            assert!(directory.log(&id).is_err(), "{how}");
        }
        std::fs::remove_dir(&record).unwrap();
        std::fs::rename(state.path().join("exec/z"), state.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("../elsewhere", state.path().join("exec/z")).unwrap();
        std::fs::write(state.path().join("elsewhere/output"), "").unwrap();
        assert!(directory.file(&id, log::OUTPUT, OFlags::RDONLY).is_err(), "a link in place of the directory");
        assert!(directory.ids().unwrap().is_empty());
    }

    /// A command can change the modes of podbayd's directories even where it can't write to them.
    #[test]
    fn modes_are_put_back() {
        use std::os::unix::fs::PermissionsExt;
        let (state, directory, id) = prepared();
        drop(create(directory.of(&id).unwrap(), log::OUTPUT).unwrap());
        for path in ["exec/z/output", "exec/z", "exec", ""] {
            std::fs::set_permissions(state.path().join(path), std::fs::Permissions::from_mode(0o000)).unwrap();
        }
        directory.file(&id, log::OUTPUT, OFlags::RDONLY).unwrap();
        assert_eq!(directory.ids().unwrap(), [id]);
        for path in ["", "exec"] {
            std::fs::set_permissions(state.path().join(path), std::fs::Permissions::from_mode(0o700)).unwrap();
        }
    }

    /// A command once had podbayd open somebody else's file to it: modes were restored through links.
    #[test]
    fn modes_are_restored_through_no_link() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let mode_of = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let closed = std::fs::Permissions::from_mode(0o555);
        // What podbayd finds closed depends on its user: as root nothing is, so the restoring itself is tried as well.
        for swapped in ["exec/z", "exec/z/output", "exec/z/record"] {
            let (state, directory, id) = prepared();
            let others = state.path().join("others");
            std::fs::create_dir(&others).unwrap();
            for name in [log::OUTPUT, RECORD] {
                std::fs::write(others.join(name), "").unwrap();
                std::fs::set_permissions(others.join(name), closed.clone()).unwrap();
            }
            std::fs::set_permissions(&others, closed.clone()).unwrap();
            let victim = match swapped {
                "exec/z" => others.clone(),
                file => others.join(Path::new(file).file_name().unwrap()),
            };
            let place = state.path().join(swapped);
            if place.is_dir() {
                std::fs::remove_dir(&place).unwrap();
            }
            symlink(&victim, &place).unwrap();
            let refused = std::cell::Cell::new(false);
            let result =
                directory.insist(Some(&id), || if refused.replace(true) { Ok(()) } else { Err(Errno::ACCESS) });
            assert!(result.is_ok() && refused.get(), "{swapped}: {result:?}");
            for path in [others.clone(), others.join(log::OUTPUT), others.join(RECORD)] {
                assert_eq!(mode_of(&path), 0o555, "{swapped}: {}", path.display());
            }
            std::fs::set_permissions(&others, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}
