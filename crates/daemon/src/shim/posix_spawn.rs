//! Starting a program without forking this process: a fork copies the page tables, and then both sides pay for each page
//! that they touch.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use rustix::fs::{Access, AtFlags};

/// SIGCANCEL and SIGSETXID.
const GLIBC_SIGNALS: [usize; 2] = [32, 33];

/// Starts a program in a session of its own, with these as standard input, output and error, and no signal blocked or
/// ignored. Returns its process id.
///
/// # Errors
/// When it can't be started, the working directory can't be entered, or [`find`] doesn't know where the program is.
pub fn spawn(command: &Command, stdio: [BorrowedFd<'_>; 3]) -> io::Result<i32> {
    let program = c_string(find(command).ok_or(io::ErrorKind::NotFound)?.as_os_str())?;
    let mut words = vec![c_string(command.get_program())?];
    for word in command.get_args() {
        words.push(c_string(word)?);
    }
    let environment = environment(command)?;
    let cwd = command.get_current_dir().map(|dir| c_string(dir.as_os_str())).transpose()?;
    let (words, environment) = (pointers(&words), pointers(&environment));

    let attributes = Attributes::new()?;
    let mut actions = Actions::new()?;
    for (fd, number) in stdio.iter().zip(0..) {
        // SAFETY: the list was initialised, and the numbers are of open descriptors.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&mut actions.0, fd.as_raw_fd(), number) })?;
    }
    if let Some(cwd) = &cwd {
        // SAFETY: the list was initialised and copies the path.
        check(unsafe { libc::posix_spawn_file_actions_addchdir_np(&mut actions.0, cwd.as_ptr()) })?;
    }
    let mut pid = 0;
    // SAFETY: all pointers are to values that live until the call returns; both arrays end with a null pointer.
    check(unsafe {
        libc::posix_spawn(
            &mut pid,
            program.as_ptr(),
            &actions.0,
            &attributes.0,
            words.as_ptr().cast(),
            environment.as_ptr().cast(),
        )
    })?;
    Ok(pid)
}

/// The file of a program: what its name says if that is a path, else the first executable of that name in the command's
/// `PATH`. Nothing where the answer depends on the working directory, or there is none.
fn find(command: &Command) -> Option<PathBuf> {
    let name = command.get_program();
    if name.as_bytes().contains(&b'/') {
        return Some(name.into());
    }
    let changed =
        command.get_envs().find(|(variable, _)| *variable == "PATH").map(|(_, value)| value.map(OsString::from));
    let path = changed.unwrap_or_else(|| std::env::var_os("PATH"))?;
    for dir in std::env::split_paths(&path) {
        if !dir.is_absolute() {
            return None;
        }
        let file = dir.join(name);
        if is_executable(&file) {
            return Some(file);
        }
    }
    None
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::accessat(rustix::fs::CWD, file, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// This process's environment with the command's changes.
fn environment(command: &Command) -> io::Result<Vec<CString>> {
    let mut all: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => drop(all.insert(name.to_owned(), value.to_owned())),
            None => drop(all.remove(name)),
        }
    }
    all.iter()
        .map(|(name, value)| c_string(&[name, OsStr::new("="), value].into_iter().collect::<OsString>()))
        .collect()
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(io::Error::from)
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new() -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: the call initialises what it is given.
        check(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
        // SAFETY: it succeeded.
        Ok(Self(unsafe { actions.assume_init() }))
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and nobody uses it any more.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut self.0) };
    }
}

struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the call initialises what it is given.
        check(unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) })?;
        // SAFETY: it succeeded.
        let mut attributes = Self(unsafe { attributes.assume_init() });
        // SAFETY: all-zero sets are valid values, and the calls write to live local variables or read them. A set is an
        // array of words that has room for all signals, 64 of them.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            let mut ignored = none;
            for signal in crate::sys::WRITE_SIGNALS {
                libc::sigaddset(&mut ignored, signal);
            }
            // glibc's posix_spawn leaves the two signals that it keeps for itself ignored in the new program, unless this
            // set names them; and sigaddset refuses to. The kernel numbers the bits of a set from signal 1 on.
            const BITS: usize = libc::c_ulong::BITS as usize;
            let words: *mut libc::c_ulong = (&raw mut ignored).cast();
            for bit in GLIBC_SIGNALS.map(|signal| signal - 1) {
                *words.add(bit / BITS) |= 1 << (bit % BITS);
            }
            check(libc::posix_spawnattr_setsigmask(&mut attributes.0, &none))?;
            check(libc::posix_spawnattr_setsigdefault(&mut attributes.0, &ignored))?;
            let signals = (libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF) as libc::c_short;
            check(libc::posix_spawnattr_setflags(&mut attributes.0, signals | libc::POSIX_SPAWN_SETSID))?;
        }
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and nobody uses it any more.
        unsafe { libc::posix_spawnattr_destroy(&mut self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    fn said(command: &Command) -> io::Result<String> {
        let null = File::open("/dev/null")?;
        let (mut output, theirs) = io::pipe()?;
        let pid = spawn(command, [null.as_fd(), theirs.as_fd(), theirs.as_fd()])?;
        drop(theirs);
        let mut text = String::new();
        output.read_to_string(&mut text)?;
        let pid = rustix::process::Pid::from_raw(pid);
        rustix::process::waitpid(pid, rustix::process::WaitOptions::empty())?;
        Ok(text)
    }

    #[test]
    fn a_program_gets_its_words_its_environment_its_directory_and_a_session() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo \"$1 $NEW ${HOME-no home}\"; pwd; read -r _ _ _ _ _ session _ </proc/self/stat; [ $session = $$ ] && echo own", "sh", "word"]);
        command.env("NEW", "value").env_remove("HOME").current_dir("/usr");
        assert_eq!(said(&command).unwrap(), "word value no home\n/usr\nown\n");
    }

    /// glibc left its own signals 32 and 33 ignored, and a program that was started so could never get them.
    #[test]
    fn no_signal_is_ignored_or_blocked() {
        // The zygote resets what it inherits. A shell starts background programs with these three ignored.
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: the default for a signal takes plain numbers.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        crate::sys::ignore_write_signals();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "grep -E '^Sig(Ign|Blk)' /proc/self/status"]);
        assert_eq!(said(&command).unwrap(), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    }

    #[test]
    fn what_cannot_be_started_is_an_error() {
        let missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        assert!(said(&Command::new("/no/such/program")).is_err_and(missing));
        assert!(said(Command::new("/bin/sh").current_dir("/no/such/directory")).is_err_and(missing));
    }

    #[test]
    fn a_name_is_looked_up_in_the_commands_path() {
        use std::os::unix::fs::PermissionsExt;
        let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [unreadable, directory, right] = dirs.each_ref().map(|dir| dir.path().join("program"));
        std::fs::write(&unreadable, "#!/bin/sh\necho wrong\n").unwrap();
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(&right, "#!/bin/sh\necho right $1\n").unwrap();
        std::fs::set_permissions(&right, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::join_paths(dirs.iter().map(tempfile::TempDir::path)).unwrap();
        let mut command = Command::new("program");
        command.arg("word").env("PATH", &path);
        assert_eq!(find(&command), Some(right));
        assert_eq!(said(&command).unwrap(), "right word\n");
        // A relative entry means something else in each working directory.
        assert_eq!(
            find(command.env("PATH", [OsStr::new("."), OsStr::new(":"), &path].into_iter().collect::<OsString>())),
            None
        );
        assert_eq!(find(command.env("PATH", "/nowhere")), None);
        assert_eq!(find(command.env_remove("PATH")), None);
        assert_eq!(find(&Command::new("./program")), Some("./program".into()));
    }
}
