//! The handle of a running jail.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::cgroup::Cgroup;
use crate::error::{FailedStep, Step};
use crate::limits::InForce;

/// How a jail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JailExit {
    /// The function that it ran returned this.
    Code(i32),
    /// A signal killed it.
    Signal(i32),
}

/// A running jail. Dropping this neither kills the jail nor waits for it: call [`cleanup`](Self::cleanup).
#[derive(Debug)]
pub struct Jailed {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) limits: Vec<InForce>,
    pub(crate) host_uid: u32,
    pub(crate) exit: Option<JailExit>,
    /// The signal that makes the first process end all others: KILL for PID 1 of a namespace, TERM for a guardian.
    pub(crate) end_by: Signal,
}

impl Jailed {
    /// The process id of the jail's PID 1, seen from outside; without namespaces, of its guardian.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// A descriptor of that process, which becomes readable when the process ends.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// The jail's control groups, if it has any.
    pub fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// The requested limits, and what enforces each.
    pub fn limits(&self) -> &[InForce] {
        &self.limits
    }

    /// The host uid of the jail's processes.
    pub fn host_uid(&self) -> u32 {
        self.host_uid
    }

    /// Waits until the jail has ended. When this returns, all of its processes are gone.
    pub fn wait(&mut self) -> Result<JailExit, FailedStep> {
        self.end(WaitIdOptions::EXITED)?.ok_or_else(|| FailedStep {
            step: "wait for the sandbox".into(),
            errno: 0,
            fix: Some("the kernel returned no status".into()),
        })
    }

    /// How the jail ended, if it has; doesn't wait.
    pub fn try_wait(&mut self) -> Result<Option<JailExit>, FailedStep> {
        self.end(WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
    }

    fn end(&mut self, options: WaitIdOptions) -> Result<Option<JailExit>, FailedStep> {
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
            Some(code) => JailExit::Code(code),
            None => JailExit::Signal(status.terminating_signal().unwrap_or(libc::SIGKILL)),
        });
        Ok(self.exit)
    }

    /// Kills all processes of the jail. If it has ended already, that is no error.
    pub fn kill(&self) -> Result<(), FailedStep> {
        if self.exit.is_some() {
            return Ok(());
        }
        match pidfd_send_signal(&self.pidfd, self.end_by) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(FailedStep::new("kill the sandbox", error)),
        }
    }

    /// Kills the jail, removes its control groups, and returns how it ended.
    pub fn cleanup(&mut self) -> Result<JailExit, FailedStep> {
        self.kill()?;
        let exit = self.wait()?;
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove()?;
        }
        self.cgroup = None;
        Ok(exit)
    }
}
