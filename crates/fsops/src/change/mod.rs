//! Changing directories: making, deleting and moving entries.

mod delete;
mod rename;

use podbay_proto::files::{Kind, Mkdir, MkdirOutput};
use podbay_proto::{Error, ErrorCode, Result};
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::Files;
use crate::identity::kind_of;
use crate::resolve::{Access, Lookup};

impl Files {
    /// Makes a directory.
    ///
    /// # Errors
    /// When it can't be made, or when something else is at the path.
    pub fn mkdir(&self, request: &Mkdir) -> Result<MkdirOutput> {
        let resolver = self.resolver(&request.scope)?;
        let mut resolved =
            resolver.allowed(&request.path, Lookup { follow: true, parents: request.parents }, Access::Change)?;
        if request.mode.is_some_and(|mode| mode > 0o7777) {
            return Err(Error::at(
                ErrorCode::InvalidArgument,
                &resolved.asked,
                "invalid mode: only the bits 07777 can be set",
            ));
        }
        let shown = resolved.shown.clone();
        let Some(name) = resolved.name.clone() else {
            // The path is a directory that was opened, so it exists.
            return match request.exist_ok {
                true => Ok(MkdirOutput { path: shown, created: false }),
                false => Err(resolved.error(Errno::EXIST)),
            };
        };
        resolved.make_parents()?;
        match rustix::fs::mkdirat(&resolved.dir, &name[..], Mode::from_raw_mode(request.mode.unwrap_or(0o777))) {
            Ok(()) => {
                if let Some(mode) = request.mode {
                    // The umask doesn't apply to a mode that was asked for.
                    let dir = resolved.open_dir()?;
                    rustix::fs::fchmod(dir, Mode::from_raw_mode(mode)).map_err(|error| resolved.error(error))?;
                }
                Ok(MkdirOutput { path: shown, created: true })
            }
            Err(Errno::EXIST) if request.exist_ok => match kind_of(&resolved.stat()?) {
                Kind::Dir => Ok(MkdirOutput { path: shown, created: false }),
                _ => Err(resolved.error(Errno::EXIST)),
            },
            Err(error) => Err(resolved.error(error)),
        }
    }
}
