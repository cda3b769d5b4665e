//! The directories of a sandbox that has no mount namespace: where its state, its temporary files and, unless it was given
//! one, its workspace lie on the host.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;

use crate::error::{Failure, JailError, Step};
use crate::ids::Who;
use crate::jail::Jail;

/// The directory below a sandbox's own that holds them.
const AREA: &str = "area";

/// In podbayd's state: the commands, with their logs. Commands may read it.
pub(crate) const COMMANDS: &str = "exec";

/// In podbayd's state: what agent frameworks write. Commands may write it.
pub(crate) const ARTEFACTS: &str = "artefacts";

/// Makes what a jail without namespaces needs below a sandbox's own directory, and completes the jail with it. Everything
/// goes with that directory.
///
/// # Errors
/// When a directory can't be made, or couldn't be reached by the sandbox's user.
pub fn furnish(dir: &Path, jail: &mut Jail) -> Result<(), JailError> {
    let who = Who::of(jail)?;
    if who.switches {
        open_the_way(dir)?;
    }
    let area = dir.join(AREA);
    // Others look for nothing in here, but root's sandbox has to get through.
    make(&area, 0o711)?;
    let (state, temporary, workspace) = (area.join("state"), area.join("tmp"), area.join("workspace"));
    let own = |path: &Path| -> Result<(), Failure> {
        make(path, 0o700)?;
        match who.switches {
            true => chown(path, Some(who.uid), Some(who.gid)).step(|| format!("give {} away", path.display())),
            false => Ok(()),
        }
    };
    own(&state)?;
    own(&state.join(COMMANDS))?;
    own(&state.join(ARTEFACTS))?;
    own(&temporary)?;
    if jail.workspace.is_none() {
        own(&workspace)?;
        jail.workspace = Some(workspace);
    }
    jail.state = Some(state);
    jail.temporary = Some(temporary);
    Ok(())
}

fn make(path: &Path, mode: u32) -> Result<(), Failure> {
    let step = || format!("make {}", path.display());
    DirBuilder::new().mode(mode).create(path).step(step)?;
    // The umask has no say here.
    fs::set_permissions(path, Permissions::from_mode(mode)).step(step)
}

/// Lets the sandbox's user, who is a stranger, through to its directory. What else lies on the way is closed by its own
/// mode.
fn open_the_way(dir: &Path) -> Result<(), JailError> {
    for (height, place) in dir.ancestors().enumerate() {
        let mode = fs::metadata(place).step(|| format!("look at {}", place.display()))?.mode();
        if mode & 0o001 != 0 {
            continue;
        }
        // The directory itself, that of all sandboxes, and the home are ours.
        if height < 3 {
            let open = Permissions::from_mode(mode & 0o7777 | 0o011);
            fs::set_permissions(place, open).step(|| format!("open the way through {}", place.display()))?;
            continue;
        }
        let failure = Failure::new(format!("let the sandbox's user through {}", place.display()), denied());
        let fix = "root's sandboxes have a user of their own, who must get to their directories: set PODBAY_HOME to a \
                   place that everybody can get through to";
        return Err(failure.fix(fix).into());
    }
    Ok(())
}

fn denied() -> io::Error {
    io::Error::from_raw_os_error(libc::EACCES)
}
