//! Where local sandboxes have their directories.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use podbay_jail::supervision::{NEW, SANDBOXES};

use crate::error::{Error, Result};

/// The directory below which local sandboxes live: `$PODBAY_HOME`, else `podbay` in the user's runtime directory, else
/// `/tmp/podbay-UID`. Nothing in it outlives a restart of the machine, and neither do sandboxes.
#[derive(Debug, Clone)]
pub struct Home {
    path: PathBuf,
}

impl Home {
    /// The user's.
    ///
    /// # Errors
    /// When it can't be made, or belongs to someone else.
    pub fn of_user() -> Result<Self> {
        let uid = rustix::process::getuid();
        let path = match (std::env::var_os("PODBAY_HOME"), std::env::var_os("XDG_RUNTIME_DIR")) {
            (Some(home), _) if !home.is_empty() => PathBuf::from(home),
            (_, Some(runtime)) if Path::new(&runtime).is_dir() => Path::new(&runtime).join("podbay"),
            _ if uid.is_root() => PathBuf::from("/run/podbay-local"),
            _ => PathBuf::from(format!("/tmp/podbay-{}", uid.as_raw())),
        };
        Self::at(path)
    }

    /// One at a path.
    ///
    /// # Errors
    /// When it can't be made, or belongs to someone else.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        // Supervisors outlive the working directory of whoever started them.
        let path = std::path::absolute(&path).map_err(Error::home(&path, "it can't be named"))?;
        for dir in [path.clone(), path.join(SANDBOXES), path.join(NEW), path.join("bin")] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .map_err(Error::home(&dir, "the directory can't be made"))?;
        }
        let meta = fs::symlink_metadata(&path).map_err(Error::home(&path, "it can't be looked at"))?;
        // In a directory that all may write to, someone else could have been first.
        if meta.uid() != rustix::process::getuid().as_raw() || meta.mode() & 0o022 != 0 {
            let source =
                io::Error::new(io::ErrorKind::PermissionDenied, "it must be yours and writable by nobody else");
            return Err(Error::home(&path, "it isn't safe to use; set PODBAY_HOME to another directory")(source));
        }
        Ok(Self { path })
    }

    /// Where the sandboxes are.
    pub fn sandboxes(&self) -> PathBuf {
        self.path.join(SANDBOXES)
    }

    /// Where those are that are being made.
    pub(crate) fn new_ones(&self) -> PathBuf {
        self.path.join(NEW)
    }

    /// podbayd as a file. It is written once for each build.
    pub(crate) fn podbayd(&self) -> Result<PathBuf> {
        let arch = std::env::consts::ARCH;
        let bytes = podbay_embed::daemon(arch).ok_or(Error::NoDaemon(arch))?;
        let path = self.path.join("bin").join(format!("podbayd-{:016x}", fingerprint(bytes)));
        if fs::metadata(&path).is_ok_and(|meta| meta.len() == bytes.len() as u64) {
            return Ok(path);
        }
        let temporary = path.with_extension(format!("{:08x}", rand::random::<u32>()));
        write_program(&temporary, bytes)
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(Error::home(&temporary, "podbayd can't be written"))?;
        Ok(path)
    }
}

fn write_program(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    // Root's sandboxes have users of their own, who run it again when one of podbayd's processes was killed.
    file.set_permissions(fs::Permissions::from_mode(0o755))?;
    file.write_all(bytes)
}

/// Tells builds apart. Nobody but the user can write here, so it need not withstand an attacker.
fn fingerprint(bytes: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    static KNOWN: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *KNOWN.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        hasher.finish()
    })
}
