//! The directory of a local sandbox, as its creator and its supervisor share it.
//!
//! The creator is the local provider, in whatever program uses it; the supervisor is `podbayd supervise`. Both read and write
//! the same files, so the format is here, and not in the provider: that carries podbayd, and podbayd can't carry the provider.
//!
//! A sandbox's directory is `HOME/sandboxes/NAME`. The creator assembles it in `HOME/new` and moves it into place with one
//! rename that replaces nothing; [`remove_sandbox`] takes it away under one lock. So at any time a name has at most one
//! sandbox, and nobody removes a directory that belongs to a later one.
#![cfg(target_os = "linux")]

mod directory;
mod host_dirs;
mod record;

pub use directory::{
    CONTROL, DirectoryIdentity, LOG, NEW, SANDBOXES, SOCKET, SPEC, STARTED, is_supervised, mark_supervised,
    remove_sandbox, remove_tree,
};
pub use host_dirs::make_host_dirs;
pub use record::{Spec, StartReport, Started};
