//! The smaller confinement of commands inside a jail without namespaces.
//!
//! podbayd and its shims speak to each other by sockets and keep files that are not the commands' to write. A command gets
//! less: no socket, its own places only. It steps into this between fork and exec, where no memory may be allocated, so
//! everything is prepared before.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

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
use crate::{host_dirs, host_mounts, landlock, seccomp, seccomp_notify, without_namespaces};

/// What commands of a jail without namespaces may use: plain data, which can be handed to another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandConfinement {
    /// Places of the host, and whether they can be written.
    given: Vec<(PathBuf, bool)>,
    network: bool,
    /// The user of its own that root's sandbox may have, who has nothing on this host but the sandbox.
    own: Option<u32>,
}

impl CommandConfinement {
    /// What commands of this jail may use.
    ///
    /// # Errors
    /// When the jail couldn't be made either.
    pub fn of(jail: &Jail) -> Result<Self, JailError> {
        let mut given: Vec<(PathBuf, bool)> =
            [&jail.workspace, &jail.temporary].into_iter().flatten().map(|place| (place.clone(), true)).collect();
        if let Some(state) = &jail.state {
            given.extend([(state.join(host_dirs::ARTEFACTS), true), (state.join(host_dirs::COMMANDS), false)]);
        }
        given.extend(jail.mounts.iter().map(|mount| (mount.host.clone(), mount.writable)));
        let own = rustix::process::geteuid().is_root().then(|| own_id(&jail.id)).transpose()?;
        Ok(Self { given, network: jail.network != Network::None, own })
    }

    /// Opens all of it, as the sandbox's user.
    ///
    /// # Errors
    /// When a place is gone, or the kernel can't confine like that.
    pub fn prepare(&self) -> Result<PreparedConfinement, FailedStep> {
        let mut openable = Openable::system(self.network);
        for (place, writable) in &self.given {
            openable.given.push((host_mounts::open_without_links(place)?, *writable));
        }
        // Real paths: what was opened through no link is where it was said to be.
        let places = self.given.iter().filter(|(_, writable)| *writable).map(|(place, _)| place.clone()).collect();
        // Asked of the process itself: the workspace, by which its user was chosen, may be another by now.
        let owns_nothing = self.own == Some(rustix::process::geteuid().as_raw());
        let compile = |metadata| {
            seccomp::compile(Profile::Landlock(LandlockProfile { unix: false, network: self.network, metadata }))
        };
        Ok(PreparedConfinement {
            rules: landlock::unapplied(&openable)?,
            program: compile(true)?,
            question: if owns_nothing { None } else { Some((seccomp_notify::filter(), compile(false)?)) },
            places,
        })
    }
}

/// A prepared [`CommandConfinement`].
#[derive(Debug)]
pub struct PreparedConfinement {
    rules: OwnedFd,
    program: BpfProgram,
    /// Where modes and times are asked about: the filter that asks, and the one that refuses where nobody can be asked.
    question: Option<(BpfProgram, BpfProgram)>,
    places: Vec<PathBuf>,
}

impl PreparedConfinement {
    /// The same, its descriptor moved to a number. What was open there is closed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn moved_to(self, number: i32) -> io::Result<Self> {
        if self.rules.as_raw_fd() == number {
            return Ok(self);
        }
        // SAFETY: `rules` is open. What was at the number is the caller's to lose, as said above.
        if unsafe { libc::dup3(self.rules.as_raw_fd(), number, libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: dup3 has just made it, and nobody else owns it.
        let rules = unsafe { std::os::fd::FromRawFd::from_raw_fd(number) };
        Ok(Self { rules, ..self })
    }

    /// Confines this thread and all that it starts, for good. Through `asking`, a socket, goes the end at which
    /// [`SeccompListener`] arrive; without one, they are refused. It only makes system calls.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enter(&self, asking: Option<BorrowedFd<'_>>) -> io::Result<()> {
        // SAFETY: the call takes numbers only. no_new_privs is set in every jail.
        if unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.rules.as_raw_fd(), 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        install(&self.program)?;
        let Some((questions, refusal)) = &self.question else { return Ok(()) };
        let listener = asking.map(|asking| Ok((asking, seccomp_notify::listen(questions)?))).transpose();
        match listener {
            Ok(Some((asking, listener))) => send(asking, listener.as_fd()),
            Ok(None) => install(refusal),
            // Somebody around us listens already, and there can be one only.
            Err(error) => match io::Error::raw_os_error(&error) {
                Some(libc::EBUSY) => install(refusal),
                _ => Err(error),
            },
        }
    }

    /// Whether [`enter`](Self::enter) asks.
    pub fn asks(&self) -> bool {
        self.question.is_some()
    }

    /// What arrived through the other end of `asking`; nothing where nothing is asked.
    ///
    /// # Errors
    /// When it can't be received.
    pub fn errands(&self, asked: BorrowedFd<'_>) -> io::Result<Option<SeccompListener>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(asked, &mut [IoSliceMut::new(&mut [0])], &mut control, flags);
        match received {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut fds) = message {
                return Ok(fds.next().map(|listener| SeccompListener::new(listener, self.places.clone())));
            }
        }
        Ok(None)
    }
}

fn send(asking: BorrowedFd<'_>, listener: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [listener];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(asking, &[IoSlice::new(b"!")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn install(program: &BpfProgram) -> io::Result<()> {
    match seccompiler::apply_filter(program) {
        Ok(()) => Ok(()),
        Err(seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error)) => Err(error),
        // The others speak of threads and of empty filters; this call has neither.
        Err(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// Kills all that descends from this process, which must be their subreaper, and waits until none is left.
pub fn end_descendants() {
    // Looking through /proc takes longer than asking the kernel.
    let none = rustix::process::wait(rustix::process::WaitOptions::NOHANG);
    if !matches!(none, Err(rustix::io::Errno::CHILD)) {
        without_namespaces::end_all();
    }
}
