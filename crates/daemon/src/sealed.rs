//! podbayd's own program as a sealed copy in memory.
//!
//! A process's program can be reached through `/proc/PID/exe`, and overwritten once it has ended: that is how containers
//! took over their host's runc (CVE-2019-5736). A sealed copy is nobody's file, and can't be changed by anyone. It can't be
//! read either, so that the kernel lets nobody trace a process that runs it, from its first instruction on.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

/// What the kernel calls such a copy.
const NAME: &str = "podbayd";

/// The program that this process runs.
const FILE: &str = "/proc/self/exe";

/// Whether this process runs from a sealed copy.
pub fn is_running() -> bool {
    fs::read_link(FILE).is_ok_and(|path| path.as_os_str().as_encoded_bytes().starts_with(b"/memfd:podbayd"))
}

/// A program that can be run.
pub struct OwnProgram {
    path: PathBuf,
    /// Keeps the copy until it runs.
    copy: Option<OwnedFd>,
}

impl OwnProgram {
    /// This program: a sealed copy of it, or the file itself where the kernel runs no program from memory
    /// (`vm.memfd_noexec`, a seccomp profile).
    pub fn prepare() -> Self {
        let copy = if is_running() { None } else { copy().ok() };
        let path = match &copy {
            Some(copy) => format!("/proc/self/fd/{}", copy.as_raw_fd()).into(),
            None => FILE.into(),
        };
        Self { path, copy }
    }

    /// Starts it. Where the kernel makes the copy but doesn't run it, the file itself is started.
    ///
    /// # Errors
    /// When neither can be started.
    pub fn spawn(&self, arguments: impl Fn(&mut Command)) -> io::Result<Child> {
        let start = |path: &Path| {
            let mut command = Command::new(path);
            arguments(&mut command);
            command.spawn()
        };
        start(&self.path).or_else(|error| if self.copy.is_some() { start(Path::new(FILE)) } else { Err(error) })
    }
}

/// Replaces this process by a sealed copy of its program, with these arguments. Returns where that isn't possible.
pub fn exec_copy(arguments: impl Iterator<Item = OsString>) {
    let program = OwnProgram::prepare();
    if program.copy.is_some() {
        // Where the kernel makes the copy but doesn't run it, this process continues.
        let _ = Command::new(&program.path).args(arguments).exec();
    }
}

fn copy() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = match rustix::fs::memfd_create(NAME, flags | MemfdFlags::EXEC) {
        // Linux before 6.3 runs every such file.
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(NAME, flags)?,
        made => made?,
    };
    let mut memory = File::from(memory);
    io::copy(&mut File::open(FILE)?, &mut memory)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&memory, seals)?;
    // A file that somebody can write to can't be run, also if what it holds is sealed.
    let own = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let sealed = rustix::fs::open(own, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fchmod(&sealed, Mode::from_raw_mode(0o111))?;
    Ok(sealed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, PermissionsExt};

    /// The story: a killed zygote's successor could be traced, and its program on the host changed (CVE-2019-5736).
    #[test]
    fn a_copy_runs_and_cannot_be_changed() {
        let sealed = File::from(copy().unwrap());
        let listed = Command::new(format!("/proc/self/fd/{}", sealed.as_raw_fd())).arg("--list").output().unwrap();
        assert!(String::from_utf8_lossy(&listed.stdout).contains("a_copy_runs"), "{listed:?}");
        assert_eq!(sealed.metadata().unwrap().permissions().mode() & 0o777, 0o111);
        // Its owner can open it again with other modes, but not change it.
        fs::set_permissions(format!("/proc/self/fd/{}", sealed.as_raw_fd()), fs::Permissions::from_mode(0o777))
            .unwrap();
        let writable = File::options().write(true).open(format!("/proc/self/fd/{}", sealed.as_raw_fd())).unwrap();
        assert!(writable.write_all_at(b"x", 0).is_err());
        assert!(writable.set_len(0).is_err());
    }
}
