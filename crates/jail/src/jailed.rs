//! The handle of a running jail.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::cgroup::Cgroup;
use crate::error::{FailedStep, Step};
use crate::limits::InForce;

/// How a jail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// `inside` returned this.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

/// A running jail. Dropping it neither kills nor waits: end with [`cleanup`](Self::cleanup).
#[derive(Debug)]
pub struct Jailed {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) limits: Vec<InForce>,
    pub(crate) host_uid: u32,
    pub(crate) exit: Option<Exit>,
    /// What makes the process end all others: KILL for PID 1 of a namespace, TERM for a guardian.
    pub(crate) end_by: Signal,
}

impl Jailed {
    /// The pid of the sandbox's PID 1, as seen from outside; with isolation Landlock, of its guardian.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// A descriptor of that process, readable when it has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The control groups, where there are any.
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Which of the limits asked for are in force, and by what.
    pub fn limits(&self) -> &[InForce] {
        &self.limits
    }

    /// The uid on the host that the sandbox's processes have.
    pub fn host_uid(&self) -> u32 {
        self.host_uid
    }

    /// Waits for the end. All processes of the sandbox are gone when this returns.
    pub fn wait(&mut self) -> Result<Exit, FailedStep> {
        self.end(WaitIdOptions::EXITED)?.ok_or_else(|| FailedStep {
            step: "wait for the sandbox".into(),
            errno: 0,
            fix: Some("the kernel returned without a status".into()),
        })
    }

    /// Whether it has ended, without waiting.
    pub fn try_wait(&mut self) -> Result<Option<Exit>, FailedStep> {
        self.end(WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
    }

    fn end(&mut self, options: WaitIdOptions) -> Result<Option<Exit>, FailedStep> {
        if self.exit.is_some() {
            return Ok(self.exit);
        }
        let status = loop {
            match waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
                Err(Errno::INTR) => {}
                result => break result.step(|| "wait for the sandbox".into())?,
            }
        };
        self.exit = status.map(|status| match status.exit_status() {
            Some(code) => Exit::Code(code),
            None => Exit::Signal(status.terminating_signal().unwrap_or(libc::SIGKILL)),
        });
        Ok(self.exit)
    }

    /// Kills every process of the sandbox. One that has ended already is no error.
    pub fn kill(&self) -> Result<(), FailedStep> {
        if self.exit.is_some() {
            return Ok(());
        }
        match pidfd_send_signal(&self.pidfd, self.end_by) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(FailedStep::new("kill the sandbox", error)),
        }
    }

    /// Ends the sandbox and removes what was made for it outside. Returns how it ended.
    pub fn cleanup(&mut self) -> Result<Exit, FailedStep> {
        self.kill()?;
        let exit = self.wait()?;
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove()?;
        }
        self.cgroup = None;
        Ok(exit)
    }
}
