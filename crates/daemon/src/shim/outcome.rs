//! How a command ended: decided once, written to its record, told to podbayd.

use std::io;
use std::time::Duration;

use podbay_jail::process_tree;
use podbay_proto::exec::{Exit, Info, Process, State, Usage};
use podbay_proto::record;

use super::Shim;
use super::cgroup::CommandCgroup;
use super::connection::Role;
use crate::exec_store::record::{CommandOutcome, ExecRecord};
use crate::shim_protocol::{MAX_PROCESSES, ShimReport};
use crate::stderr_log::log_error;

impl Shim {
    /// Decides the outcome once the command's own process has ended; when all are being killed, once all have.
    pub(super) fn conclude(&mut self) -> io::Result<()> {
        if !self.has_children {
            self.clock.kill_at = None;
        }
        let Some(ended) = self.ended else { return Ok(()) };
        if self.outcome.is_some() || (self.clock.kill_at.is_some() && self.has_children) {
            return Ok(());
        }
        // All that it printed is in the pipes by now. Background processes may keep printing.
        self.take_output(if self.has_children { 16 } else { usize::MAX })?;
        if !self.clock.timed_out {
            self.clock.deadline = None;
        }
        let exit = Exit {
            code: match (self.clock.timed_out, ended.code, ended.signal) {
                (true, ..) => 124,
                (_, Some(code), _) => code,
                (_, None, signal) => 128 + signal.unwrap_or(0),
            },
            signal: ended.signal.map(signal_name),
            timed_out: self.clock.timed_out,
            killed: self.killed,
            out_of_memory: self.cgroup.as_ref().is_some_and(CommandCgroup::out_of_memory),
            duration_us: self.started.elapsed().as_micros() as u64,
            usage: Usage { user_us: ended.user_us, system_us: ended.system_us, peak_memory: ended.peak_memory },
        };
        self.finish(State::Exited(exit))
    }

    pub(super) fn finish(&mut self, state: State) -> io::Result<()> {
        let outcome = self.outcome_with(state);
        if let Err(error) = ExecRecord::end(self.log.record(), self.start.outcome_at, &outcome) {
            log_error(format_args!("command {}: can't write its outcome: {error}", self.start.id));
        }
        let processes = self.processes();
        self.end_record = Some(record::encode_end(&self.info(&outcome, processes.clone())).map_err(io::Error::other)?);
        for connection in &mut self.connections {
            if let Role::Following { until, .. } = &mut connection.role {
                *until = Some(outcome.output_bytes);
            }
        }
        self.report(&ShimReport::Ended { outcome: outcome.clone(), processes })?;
        self.outcome = Some(outcome);
        Ok(())
    }

    /// Reports to podbayd.
    pub(super) fn report(&mut self, report: &ShimReport) -> io::Result<()> {
        self.connections
            .iter_mut()
            .filter(|connection| matches!(connection.role, Role::Watching))
            .try_for_each(|connection| connection.answer(report))
    }

    pub(super) fn outcome_with(&self, state: State) -> CommandOutcome {
        CommandOutcome {
            state,
            output_bytes: self.log.log().end(),
            dropped_bytes: self.log.log().dropped(),
            input_bytes: self.input.taken(),
        }
    }

    /// The description at the end of the output. podbayd fills in what it knows better.
    fn info(&self, outcome: &CommandOutcome, processes: Vec<Process>) -> Info {
        Info {
            id: self.start.id.clone(),
            command: String::new(),
            started_ms: self.start.started_ms,
            state: outcome.state.clone(),
            output_bytes: outcome.output_bytes,
            dropped_bytes: outcome.dropped_bytes,
            log: self.start.log.clone(),
            input_bytes: outcome.input_bytes,
            processes,
        }
    }

    pub(super) fn processes(&self) -> Vec<Process> {
        // Reading /proc takes longer than running `true`, and right after the start the answer is known.
        if !self.has_children || self.started.elapsed() < Duration::from_millis(1) {
            return Vec::new();
        }
        let mut processes = process_tree::descendants();
        processes.truncate(MAX_PROCESSES);
        processes
    }
}

fn signal_name(number: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    match NAMES.get(number as usize - 1) {
        Some(name) => format!("SIG{name}"),
        None => format!("SIGRTMIN+{}", number - 34),
    }
}
