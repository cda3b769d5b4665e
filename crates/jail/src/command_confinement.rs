//! The additional confinement of commands in a jail without namespaces.
//!
//! podbayd and its shims talk to each other over sockets and keep files that commands must not write. So a command is confined
//! further: no sockets, and only the directories that it was given. It enters this between fork and exec, where no memory may
//! be allocated, so everything is prepared beforehand.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use podbay_proto::layout::{ARTEFACT_DIR, EXEC_DIR};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use seccompiler::BpfProgram;
use serde::{Deserialize, Serialize};

use crate::error::{FailedStep, JailError};
use crate::ids::own_id;
use crate::jail::{Jail, Network};
use crate::landlock::Openable;
use crate::seccomp::{LandlockProfile, Profile};
use crate::seccomp_notify::SeccompListener;
use crate::{host_mounts, landlock, seccomp, seccomp_notify};

/// What commands of a jail without namespaces may use. Plain data, which can be passed to another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandConfinement {
    /// Paths on the host, and whether commands may write there.
    given: Vec<(PathBuf, bool)>,
    network: bool,
    /// The user id that is reserved for this sandbox of root, who owns nothing else on this host.
    own: Option<u32>,
}

impl CommandConfinement {
    /// The confinement of this jail's commands.
    ///
    /// # Errors
    /// When the jail couldn't be made either.
    pub fn of(jail: &Jail) -> Result<Self, JailError> {
        let mut given: Vec<(PathBuf, bool)> =
            [&jail.workspace, &jail.temporary].into_iter().flatten().map(|path| (path.clone(), true)).collect();
        if let Some(state) = &jail.state {
            given.extend([(state.join(ARTEFACT_DIR), true), (state.join(EXEC_DIR), false)]);
        }
        given.extend(jail.mounts.iter().map(|mount| (mount.host.clone(), mount.writable)));
        let own = rustix::process::geteuid().is_root().then(|| own_id(&jail.id)).transpose()?;
        Ok(Self { given, network: jail.network != Network::None, own })
    }

    /// Opens the paths and compiles the filters. Call this as the sandbox's user.
    ///
    /// # Errors
    /// When a path is gone, or the kernel lacks something that this needs.
    pub fn prepare(&self) -> Result<PreparedConfinement, FailedStep> {
        let mut openable = Openable::system(self.network);
        for (path, writable) in &self.given {
            openable.given.push((host_mounts::open_without_links(path)?, *writable));
        }
        // These are real paths, because they were opened without following links.
        let writable = self.given.iter().filter(|(_, writable)| *writable).map(|(path, _)| path.clone()).collect();
        // The process itself is asked: the user was chosen by the owner of the workspace, which may have changed.
        let owns_nothing_else = self.own == Some(rustix::process::geteuid().as_raw());
        let compile = |metadata| {
            seccomp::compile(Profile::Landlock(LandlockProfile { unix: false, network: self.network, metadata }))
        };
        Ok(PreparedConfinement {
            ruleset: landlock::unapplied(&openable)?,
            filter: compile(true)?,
            metadata: match owns_nothing_else {
                true => None,
                false => Some(MetadataFilters { notify: seccomp_notify::filter(), refuse: compile(false)? }),
            },
            writable,
        })
    }
}

/// A [`CommandConfinement`] that is ready to be entered.
#[derive(Debug)]
pub struct PreparedConfinement {
    ruleset: OwnedFd,
    filter: BpfProgram,
    /// For users who own other files on this host; see [`seccomp_notify`].
    metadata: Option<MetadataFilters>,
    writable: Vec<PathBuf>,
}

/// The two ways to keep a command from changing modes and times of files outside of its directories.
#[derive(Debug)]
struct MetadataFilters {
    /// Lets the shim decide.
    notify: BpfProgram,
    /// Refuses all changes by path, where there is no shim to decide.
    refuse: BpfProgram,
}

impl PreparedConfinement {
    /// Moves the descriptor that this holds to another number, closing what is open there.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn moved_to(self, number: i32) -> io::Result<Self> {
        if self.ruleset.as_raw_fd() == number {
            return Ok(self);
        }
        // SAFETY: `ruleset` is open. The caller gives up what was open at this number, as documented above.
        if unsafe { libc::dup3(self.ruleset.as_raw_fd(), number, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: dup3 has just made this descriptor, and nobody else owns it.
        let ruleset = unsafe { std::os::fd::FromRawFd::from_raw_fd(number) };
        Ok(Self { ruleset, ..self })
    }

    /// Confines this thread and everything that it starts, for good. Where a [`SeccompListener`] is needed, it is sent through
    /// the socket `to_shim`; without a socket, changes of modes and times by path are refused. Makes system calls only.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enter(&self, to_shim: Option<BorrowedFd<'_>>) -> io::Result<()> {
        // SAFETY: the call takes numbers only. no_new_privs is set in every jail.
        if unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.ruleset.as_raw_fd(), 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        install(&self.filter)?;
        let Some(MetadataFilters { notify, refuse }) = &self.metadata else { return Ok(()) };
        let listener = to_shim.map(|to_shim| Ok((to_shim, seccomp_notify::listen(notify)?))).transpose();
        match listener {
            Ok(Some((to_shim, listener))) => send(to_shim, listener.as_fd()),
            Ok(None) => install(refuse),
            // A process has at most one listener, and an outer sandbox has one already.
            Err(error) => match io::Error::raw_os_error(&error) {
                Some(libc::EBUSY) => install(refuse),
                _ => Err(error),
            },
        }
    }

    /// Whether [`enter`](Self::enter) makes use of a socket to the shim.
    pub fn needs_listener(&self) -> bool {
        self.metadata.is_some()
    }

    /// Receives the listener at the other end of the socket that [`enter`](Self::enter) got; `None` when none was sent.
    ///
    /// # Errors
    /// When it can't be received.
    pub fn receive_listener(&self, from_command: BorrowedFd<'_>) -> io::Result<Option<SeccompListener>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(from_command, &mut [IoSliceMut::new(&mut [0])], &mut control, flags);
        match received {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut fds) = message {
                return Ok(fds.next().map(|listener| SeccompListener::new(listener, self.writable.clone())));
            }
        }
        Ok(None)
    }
}

fn send(to_shim: BorrowedFd<'_>, listener: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [listener];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(to_shim, &[IoSlice::new(b"!")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// As [`seccomp::install`], without allocating memory for an error's text.
fn install(program: &BpfProgram) -> io::Result<()> {
    match seccompiler::apply_filter(program) {
        Ok(()) => Ok(()),
        Err(seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error)) => Err(error),
        // The other errors are about threads and empty filters, which don't occur here.
        Err(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}
