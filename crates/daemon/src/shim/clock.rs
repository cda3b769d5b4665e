//! A shim's clock: the command's deadline, and what else has its time.

use std::time::{Duration, Instant};

use podbay_jail::process_tree;
use rustix::process::Signal;

use super::{Shim, child};

/// How often killing is tried again while something is left: a process in the middle of a system call dies later.
pub(super) const KILL_AGAIN: Duration = Duration::from_millis(20);

/// How often a command's `oom_score_adj` is tried to be set, and after what pause again.
pub(super) const OOM_ATTEMPTS: u32 = 4;
const OOM_PAUSE: Duration = Duration::from_millis(5);

#[derive(Default)]
pub(super) struct Clock {
    pub(super) deadline: Option<Instant>,
    pub(super) timed_out: bool,
    /// When all that is left is killed (again).
    pub(super) kill_at: Option<Instant>,
    /// When the command's `oom_score_adj` is to be set again, and how many attempts are left.
    oom_retry: Option<(Instant, u32)>,
}

impl Clock {
    /// A clock for a command that may run this long; 0 is forever.
    pub(super) fn with_timeout(milliseconds: u64) -> Self {
        let deadline = Instant::now().checked_add(Duration::from_millis(milliseconds));
        Self { deadline: deadline.filter(|_| milliseconds > 0), ..Self::default() }
    }

    /// When it next has something to do.
    pub(super) fn next(&self) -> Option<Instant> {
        let alarms = [self.kill_at.or(self.deadline), self.oom_retry.map(|(at, _)| at)];
        alarms.into_iter().flatten().min()
    }
}

impl Shim {
    /// Has the kernel take the command first when memory runs out. Where that fails it is tried again a little later: the
    /// kernel says that a new program runs a moment before the process's files belong to its user.
    pub(super) fn prefer_for_oom(&mut self, attempts: u32) {
        let failed = self.main.is_some_and(|main| !child::prefer_for_oom(main));
        self.clock.oom_retry = (failed && attempts > 1).then(|| (Instant::now() + OOM_PAUSE, attempts - 1));
    }

    pub(super) fn check_clock(&mut self) {
        let now = Instant::now();
        if let Some((_, attempts)) = self.clock.oom_retry.filter(|(at, _)| *at <= now) {
            self.prefer_for_oom(attempts);
        }
        let is_due = |alarm: Option<Instant>| alarm.is_some_and(|alarm| alarm <= now);
        if is_due(self.clock.deadline) {
            self.clock.deadline = None;
            if self.outcome.is_none() {
                self.clock.timed_out = true;
                process_tree::signal_all(Signal::TERM);
                self.clock.kill_at = Some(now + Duration::from_millis(self.start.command.grace_ms));
            }
        }
        if is_due(self.clock.kill_at) {
            process_tree::kill_all();
            self.clock.kill_at = Some(now + KILL_AGAIN);
        }
    }
}
