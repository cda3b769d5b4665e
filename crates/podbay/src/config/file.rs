//! Settings files: where they are, and which of them can be trusted.
//!
//! There are three kinds of settings file, and each is opened in its own way. A file that the user names is read, whatever it is.
//! The user's own file is read only if nobody else could have written it. A file that is merely found in the working directory
//! may have been put there by a sandbox: it has little power (see `project`), and mustn't be able to block or flood the reader.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;

/// The name of a settings file, in the user's configuration directory and in the working directory.
pub const FILE: &str = "podbay.toml";

/// The largest settings file, in bytes.
const LARGEST: u64 = 1 << 20;

/// How many symbolic links may lead to the user's own file; the kernel's limit is the same.
const LINKS: usize = 40;

/// The user's own file: `$XDG_CONFIG_HOME/podbay/podbay.toml`, else `~/.config/podbay/podbay.toml`.
pub(super) fn of_user(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The XDG specification says to ignore relative paths. Otherwise one would make every working directory the user's own.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(directory.join("podbay").join(FILE))
}

/// Reads a file that the user named.
pub(super) fn read_named(path: &Path) -> Result<String, String> {
    File::open(path).map_err(|error| error.to_string()).and_then(bounded)
}

/// Reads the user's own file, if there is one.
///
/// # Errors
/// When somebody else could have written it. It isn't just ignored, because the user's own rules may be in it.
pub(super) fn read_own(path: &Path) -> Result<Option<String>, String> {
    let real = match vetted(path) {
        Ok(Some(real)) => real,
        Ok(None) => return Ok(None),
        Err(why) => {
            return Err(format!(
                "this file can't be trusted, because {why}; make sure that only you can write it (chown, chmod go-w), or name \
                 it with --config or PODBAY_CONFIG if you trust it, or set XDG_CONFIG_HOME to a directory of yours"
            ));
        }
    };
    regular(&real)?.map(bounded).transpose()
}

/// Reads a file found in the working directory, if there is one.
pub(super) fn read_found(path: &Path) -> Result<Option<String>, String> {
    regular(path)?.map(bounded).transpose()
}

/// Opens a regular file, without following links. A FIFO would block the reader forever, and a link could show another file's
/// content in an error message.
fn regular(path: &Path) -> Result<Option<File>, String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).map_err(|error| error.to_string())?;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Err("this is a symbolic link; put the file itself here, or name it with --config".into());
        }
        Err(error) => return Err(error.to_string()),
    };
    match file.metadata().map_err(|error| error.to_string())?.is_file() {
        true => Ok(Some(file)),
        false => Err("this isn't a regular file; remove it, or name another with --config".into()),
    }
}

fn bounded(file: File) -> Result<String, String> {
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    match text.len() as u64 > LARGEST {
        true => Err(format!("this file is larger than {} KiB, the most that a settings file may have", LARGEST >> 10)),
        false => Ok(text),
    }
}

/// Follows a path component by component, and refuses it if anybody but the user and root could change where it leads.
///
/// Each directory is checked before anything in it is used, so that only the user and root could swap something in between.
fn vetted(path: &Path) -> Result<Option<PathBuf>, String> {
    let mut real = PathBuf::from("/");
    let mut ahead: Vec<OsString> = Vec::new();
    let mut links = 0;
    push(&mut ahead, path);
    check(&real, &look(&real)?.ok_or("there is no root directory")?)?;
    while let Some(name) = ahead.pop() {
        if name == OsStr::new("..") {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        let Some(meta) = look(&next)? else { return Ok(None) };
        check(&next, &meta)?;
        if !meta.is_symlink() {
            real = next;
            continue;
        }
        links += 1;
        if links > LINKS {
            return Err(format!("too many symbolic links lead to it, the last of them {}", next.display()));
        }
        let target =
            std::fs::read_link(&next).map_err(|error| format!("can't read the link {}: {error}", next.display()))?;
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        push(&mut ahead, &target);
    }
    Ok(Some(real))
}

/// Pushes the components of a path onto the stack of those still to be followed.
fn push(ahead: &mut Vec<OsString>, path: &Path) {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    ahead.extend(names);
}

fn look(path: &Path) -> Result<Option<Metadata>, String> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        // A path that leads through something else than a directory leads to no settings.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(format!("can't stat {}: {error}", path.display())),
    }
}

fn check(path: &Path, meta: &Metadata) -> Result<(), String> {
    let us = rustix::process::geteuid().as_raw();
    if meta.uid() != us && meta.uid() != 0 {
        return Err(format!("{} belongs to user {}, and you are user {us}", path.display(), meta.uid()));
    }
    // The mode of a link means nothing. In a sticky directory, others can't replace what belongs to us or root.
    if meta.is_symlink() || meta.is_dir() && meta.mode() & 0o1000 != 0 {
        return Ok(());
    }
    // Where every user has a group of the same number, group-writable is the usual mode of private files.
    let group = meta.mode() & 0o020 != 0 && meta.gid() != us;
    match group || meta.mode() & 0o002 != 0 {
        true => Err(format!("others can write to {} (mode {:o})", path.display(), meta.mode() & 0o7777)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A user's configuration directory, with the file in it.
    fn own() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("podbay").join(FILE);
        std::fs::create_dir(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "ttl = 1\n").unwrap();
        for path in [home.path(), file.parent().unwrap(), &file] {
            chmod(path, if path == file { 0o644 } else { 0o755 });
        }
        (home, file)
    }

    #[test]
    fn the_own_file_is_where_the_specification_says() {
        let found = |config: &str, home: &str| {
            of_user(|name| match name {
                "XDG_CONFIG_HOME" => Some(config.into()),
                _ => Some(home.into()),
            })
        };
        assert_eq!(found("/c", "/h"), Some("/c/podbay/podbay.toml".into()));
        assert_eq!(found("", "/h"), Some("/h/.config/podbay/podbay.toml".into()));
        // A relative one would lead into whatever directory the user is in.
        assert_eq!(found(".", "/h"), Some("/h/.config/podbay/podbay.toml".into()));
        assert_eq!(found(".config", "."), None);
        assert_eq!(of_user(|_| None), None);
    }

    #[test]
    fn an_own_file_that_others_can_write_is_refused() {
        let (home, file) = own();
        assert_eq!(read_own(&file).unwrap().as_deref(), Some("ttl = 1\n"));
        assert_eq!(read_own(&home.path().join("nowhere/podbay.toml")).unwrap(), None);
        for (path, bad, good) in [(&file, 0o646, 0o644), (&file.parent().unwrap().to_owned(), 0o777, 0o755)] {
            chmod(path, bad);
            let error = read_own(&file).unwrap_err();
            assert!(error.contains("others can write") && error.contains("--config"), "{error}");
            chmod(path, good);
        }
        chmod(home.path(), 0o757);
        assert!(read_own(&file).is_err(), "a directory above it counts too");
    }

    #[test]
    fn links_to_the_own_file_are_followed_as_far_as_they_can_be_believed() {
        let (home, file) = own();
        let (link, open) = (home.path().join("link"), home.path().join("open"));
        symlink("podbay/../podbay/podbay.toml", &link).unwrap();
        assert_eq!(read_own(&link).unwrap().as_deref(), Some("ttl = 1\n"));
        // Whoever can write here could lead it to any file of the user's, a sandbox's workspace for example.
        std::fs::create_dir(&open).unwrap();
        chmod(&open, 0o777);
        symlink(&file, open.join("link")).unwrap();
        assert!(read_own(&open.join("link")).is_err());
        std::fs::remove_file(&link).unwrap();
        symlink(&link, &link).unwrap();
        assert!(read_own(&link).unwrap_err().contains("too many"));
    }

    /// Root with another user's XDG_CONFIG_HOME or HOME (`su`, `sudo -E`) took that user's word for everything.
    #[test]
    fn another_users_file_is_refused() {
        let (_home, file) = own();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        std::os::unix::fs::chown(&file, Some(1000), Some(1000)).unwrap();
        assert!(read_own(&file).unwrap_err().contains("belongs to user 1000"));
        std::os::unix::fs::chown(&file, Some(0), Some(0)).unwrap();
        std::os::unix::fs::chown(file.parent().unwrap(), Some(1000), Some(1000)).unwrap();
        assert!(read_own(&file).unwrap_err().contains("belongs to user 1000"));
    }

    /// A sandbox that shares the working directory can put anything there under this name.
    #[test]
    fn what_is_found_is_a_regular_file_of_a_sensible_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        assert_eq!(read_found(&path).unwrap(), None);
        symlink("/etc/passwd", &path).unwrap();
        assert!(read_found(&path).unwrap_err().contains("symbolic link"));
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
        assert!(read_found(&path).unwrap_err().contains("regular file"));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read_found(&path).unwrap_err().contains("regular file"));
        std::fs::remove_dir(&path).unwrap();
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read_found(&path).unwrap_err().contains("larger than"));
        std::fs::write(&path, "ttl = 1").unwrap();
        assert_eq!(read_found(&path).unwrap().as_deref(), Some("ttl = 1"));
    }
}
