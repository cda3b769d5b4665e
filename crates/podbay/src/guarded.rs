//! A sandbox with rules and a record: every operation passes here.

use std::path::Path;

use bytes::Bytes;
use podbay_client::files::{
    Delete, DeleteOutput, Download, DownloadOutput, Edit, EditOutput, Glob, GlobOutput, Grep, GrepOutput, Ls, LsOutput,
    Mkdir, MkdirOutput, Move, MoveOutput, Read, ReadOutput, Scope, Stat, StatOutput, Tree, TreeOutput, Write,
    WriteOutput,
};
use podbay_client::{
    Command, Control, Error, Event, Exec, ExecId, Info, Meter, Output, RawPath, Result, Sandbox, State, Target,
    Transferred, Witness,
};

use crate::audit::{Audit, Effect, Operation};
use crate::policy::Policy;

/// A sandbox whose every operation is checked and recorded. It doesn't hand out the sandbox beneath.
#[derive(Debug, Clone)]
pub struct Guarded {
    sandbox: Sandbox,
    id: String,
    policy: Policy,
    audit: Audit,
}

macro_rules! file_operations {
    ($($(#[doc = $doc:literal])+ $name:ident($request:ty) -> $output:ty, $target:expr, $bytes:expr;)+) => {
        impl Guarded {
            $(
                $(#[doc = $doc])+
                ///
                /// # Errors
                /// As the sandbox's own, and `policy_denied`.
                pub async fn $name(&self, request: &$request) -> Result<$output> {
                    let request = <$request>::clone(request);
                    let request = { let mut request = request; request.scope = self.policy.narrow(&request.scope); request };
                    let target: fn(&$request) -> String = $target;
                    let bytes: fn(&$output) -> Option<u64> = $bytes;
                    self.recorded(stringify!($name), target(&request), self.sandbox.$name(&request), |output| {
                        Effect { bytes: bytes(output), exit: None }
                    })
                    .await
                }
            )+
        }
    };
}

file_operations! {
    /// Reads a page of a file.
    read(Read) -> (ReadOutput, Bytes), |request| request.path.to_string(), |(_, content)| Some(content.len() as u64);
    /// Lists a directory.
    ls(Ls) -> LsOutput, |request| start(request.path.as_ref()), |_| None;
    /// Tells what is at a path.
    stat(Stat) -> StatOutput, |request| request.path.to_string(), |_| None;
    /// Finds files by name.
    glob(Glob) -> GlobOutput, |request| start(request.path.as_ref()), |_| None;
    /// Finds text in files.
    grep(Grep) -> GrepOutput, |request| start(request.path.as_ref()), |_| None;
    /// Lists a directory and all below it.
    tree(Tree) -> TreeOutput, |request| start(request.path.as_ref()), |_| None;
    /// Deletes a file or a directory.
    delete(Delete) -> DeleteOutput, |request| request.path.to_string(), |_| None;
    /// Makes a directory.
    mkdir(Mkdir) -> MkdirOutput, |request| request.path.to_string(), |_| None;
    /// Moves or renames.
    relocate(Move) -> MoveOutput, |request| format!("{} -> {}", request.from, request.to), |_| None;
    /// Fetches a file whole, into memory.
    download(Download) -> Bytes, |request| request.path.to_string(), |content| Some(content.len() as u64);
}

fn start(path: Option<&RawPath>) -> String {
    path.map_or_else(|| ".".to_owned(), RawPath::to_string)
}

impl Guarded {
    /// A sandbox behind rules and a record.
    pub fn new(sandbox: Sandbox, id: impl Into<String>, policy: Policy, audit: Audit) -> Self {
        Self { sandbox, id: id.into(), policy, audit }
    }

    /// The sandbox's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its rules.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    async fn recorded<T>(
        &self,
        op: &'static str,
        target: String,
        work: impl Future<Output = Result<T>>,
        effect: impl FnOnce(&T) -> Effect,
    ) -> Result<T> {
        let operation = self.audit.begin(&self.id, op, target)?;
        let result = work.await;
        self.audit.end(operation, result.as_ref().map(effect))?;
        result
    }

    /// Creates or replaces a file.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn write(&self, request: &Write, content: impl Into<Bytes>) -> Result<WriteOutput> {
        let request = Write { scope: self.policy.narrow(&request.scope), ..request.clone() };
        let work = self.sandbox.write(&request, content);
        self.recorded("write", request.path.to_string(), work, |output| Effect { bytes: Some(output.size), exit: None })
            .await
    }

    /// Replaces a text in a file.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn edit(&self, request: &Edit, payload: impl Into<Bytes>) -> Result<EditOutput> {
        let request = Edit { scope: self.policy.narrow(&request.scope), ..request.clone() };
        let work = self.sandbox.edit(&request, payload);
        self.recorded("edit", request.path.to_string(), work, |output| Effect { bytes: Some(output.size), exit: None })
            .await
    }

    /// Writes many files, one entry of the record for each. The results stand in the order of the files.
    pub async fn write_all(&self, files: Vec<(Write, Bytes)>) -> Vec<Result<WriteOutput>> {
        let mut results: Vec<Option<Result<WriteOutput>>> = Vec::with_capacity(files.len());
        let (mut begun, mut allowed) = (Vec::new(), Vec::new());
        for (request, content) in files {
            match self.audit.begin(&self.id, "write", request.path.to_string()) {
                Ok(operation) => {
                    begun.push((results.len(), operation));
                    allowed.push((Write { scope: self.policy.narrow(&request.scope), ..request }, content));
                    results.push(None);
                }
                Err(error) => results.push(Some(Err(error))),
            }
        }
        for ((at, operation), result) in begun.into_iter().zip(self.sandbox.write_all(allowed).await) {
            let effect = result.as_ref().map(|output| Effect { bytes: Some(output.size), exit: None });
            let told = self.audit.end(operation, effect);
            results[at] = Some(told.and(result));
        }
        results.into_iter().flatten().collect()
    }

    /// Sends a file of this machine.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn upload_file(&self, local: &Path, request: &Write, meter: &Meter<'_>) -> Result<WriteOutput> {
        let request = Write { scope: self.policy.narrow(&request.scope), ..request.clone() };
        let work = self.sandbox.upload_file(local, &request, meter);
        self.recorded("upload", request.path.to_string(), work, |output| Effect {
            bytes: Some(output.size),
            exit: None,
        })
        .await
    }

    /// Fetches a file to this machine.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn download_file(&self, request: &Download, local: &Path, meter: &Meter<'_>) -> Result<DownloadOutput> {
        let request = Download { scope: self.policy.narrow(&request.scope), ..request.clone() };
        let work = self.sandbox.download_file(&request, local, meter);
        let effect = |output: &DownloadOutput| Effect { bytes: Some(output.length), exit: None };
        self.recorded("download", request.path.to_string(), work, effect).await
    }

    /// Fetches many files whole, one entry of the record for each. The results stand in the order of the requests.
    pub async fn download_all(&self, requests: Vec<Download>) -> Vec<Result<Bytes>> {
        let mut results: Vec<Option<Result<Bytes>>> = Vec::with_capacity(requests.len());
        let (mut begun, mut allowed) = (Vec::new(), Vec::new());
        for request in requests {
            match self.audit.begin(&self.id, "download", request.path.to_string()) {
                Ok(operation) => {
                    begun.push((results.len(), operation));
                    allowed.push(Download { scope: self.policy.narrow(&request.scope), ..request });
                    results.push(None);
                }
                Err(error) => results.push(Some(Err(error))),
            }
        }
        for ((at, operation), result) in begun.into_iter().zip(self.sandbox.download_all(allowed).await) {
            let effect = result.as_ref().map(|content| Effect { bytes: Some(content.len() as u64), exit: None });
            let told = self.audit.end(operation, effect);
            results[at] = Some(told.and(result));
        }
        results.into_iter().flatten().collect()
    }

    /// Sends a directory of this machine and all below it. The rules hold for each file by itself, and each has an entry of
    /// its own in the record: one that is denied is among those that failed, and isn't sent.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn upload_tree(&self, local: &Path, remote: &RawPath, meter: &Meter<'_>) -> Result<Transferred> {
        let scope = self.policy.narrow(&Scope::default());
        let each = EachFile { guarded: self, op: "upload" };
        let work = self.sandbox.upload_tree_within(local, remote, &scope, &each, meter);
        self.recorded("upload_tree", remote.to_string(), work, |_| Effect::default()).await
    }

    /// Fetches a directory and all below it to this machine. Where the rules hold for reading, what they deny isn't there.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn download_tree(&self, remote: &RawPath, local: &Path, meter: &Meter<'_>) -> Result<Transferred> {
        let scope = self.policy.narrow(&Scope::default());
        let each = EachFile { guarded: self, op: "download" };
        let work = self.sandbox.download_tree_within(remote, local, &scope, &each, meter);
        self.recorded("download_tree", remote.to_string(), work, |_| Effect::default()).await
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn run(&self, command: impl Into<Command>) -> Result<Output> {
        self.run_capped(command, podbay_proto::exec::DEFAULT_OUTPUT_CAP).await
    }

    /// Runs a command to its end, with at most `cap` bytes of output.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn run_capped(&self, command: impl Into<Command>, cap: u64) -> Result<Output> {
        let command = command.into();
        let target = command.summary();
        let work = async {
            self.policy.check(&command)?;
            self.sandbox.run_capped(command, cap).await
        };
        let effect = |output: &Output| Effect { bytes: Some(output.info.output_bytes), exit: output.code() };
        self.recorded("exec", target, work, effect).await
    }

    /// Runs a command to its end, with these bytes as its standard input and at most `cap` bytes of output.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn run_with_input(
        &self,
        command: impl Into<Command>,
        input: impl Into<Bytes>,
        cap: u64,
    ) -> Result<Output> {
        let command = command.into();
        let target = command.summary();
        let work = async {
            self.policy.check(&command)?;
            self.sandbox.run_with_input(command, input, cap).await
        };
        let effect = |output: &Output| Effect { bytes: Some(output.info.output_bytes), exit: output.code() };
        self.recorded("exec", target, work, effect).await
    }

    /// Starts a command and leaves it running.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn start(&self, command: impl Into<Command>) -> Result<Info> {
        let command = command.into();
        let target = command.summary();
        let work = async {
            self.policy.check(&command)?;
            self.sandbox.start(command).await
        };
        self.recorded("exec.start", target, work, |_| Effect::default()).await
    }

    /// Starts a command and streams what it does. It is recorded when it has ended, or is no longer followed.
    ///
    /// # Errors
    /// As the sandbox's own, and `policy_denied`.
    pub async fn spawn(&self, command: impl Into<Command>) -> Result<GuardedExec> {
        let command = command.into();
        let operation = self.audit.begin(&self.id, "exec", command.summary())?;
        let started = match self.policy.check(&command) {
            Ok(()) => self.sandbox.spawn(command).await,
            Err(denied) => Err(denied.into()),
        };
        match started {
            Ok(exec) => Ok(GuardedExec { exec, audit: self.audit.clone(), operation: Some(operation) }),
            Err(error) => {
                self.audit.end(operation, Err(&error))?;
                Err(error)
            }
        }
    }

    /// Streams what a command does that was started before.
    ///
    /// # Errors
    /// As the sandbox's own.
    pub async fn attach(&self, id: &ExecId, offset: u64) -> Result<GuardedExec> {
        let operation = self.audit.begin(&self.id, "exec.attach", id.to_string())?;
        match self.sandbox.attach(id, offset).await {
            Ok(exec) => Ok(GuardedExec { exec, audit: self.audit.clone(), operation: Some(operation) }),
            Err(error) => {
                self.audit.end(operation, Err(&error))?;
                Err(error)
            }
        }
    }

    /// Tells about a command.
    ///
    /// # Errors
    /// As the sandbox's own.
    pub async fn status(&self, id: &ExecId) -> Result<Info> {
        self.recorded("exec.status", id.to_string(), self.sandbox.status(id), |_| Effect::default()).await
    }

    /// Lists commands.
    ///
    /// # Errors
    /// As the sandbox's own.
    pub async fn commands(&self, running: bool) -> Result<Vec<Info>> {
        self.recorded("exec.list", String::new(), self.sandbox.commands(running), |_| Effect::default()).await
    }

    /// Sends a signal to a command's own process, or to everything that it started.
    ///
    /// # Errors
    /// As the sandbox's own.
    pub async fn signal_to(&self, id: &ExecId, signal: i32, target: Target) -> Result<u32> {
        let work = self.sandbox.signal_to(id, signal, target);
        self.recorded("exec.signal", format!("{id} {signal}"), work, |_| Effect::default()).await
    }

    /// Kills everything that a command started.
    ///
    /// # Errors
    /// As the sandbox's own.
    pub async fn kill(&self, id: &ExecId) -> Result<u32> {
        self.signal_to(id, 9, Target::All).await
    }
}

/// Records each file of a tree.
struct EachFile<'a> {
    guarded: &'a Guarded,
    op: &'static str,
}

impl Witness for EachFile<'_> {
    type Ticket = Operation;

    fn begin(&self, path: &RawPath) -> Result<Operation> {
        self.guarded.audit.begin(&self.guarded.id, self.op, path.to_string())
    }

    fn end(&self, operation: Operation, result: Result<u64, &Error>) -> Result<()> {
        self.guarded.audit.end(operation, result.map(|bytes| Effect { bytes: Some(bytes), exit: None }))
    }
}

/// A command that runs, and is recorded when it ends.
#[derive(Debug)]
pub struct GuardedExec {
    exec: Exec,
    audit: Audit,
    operation: Option<Operation>,
}

impl GuardedExec {
    /// The command's id.
    pub fn id(&self) -> &ExecId {
        self.exec.id()
    }

    /// The next thing that the command does; nothing after its end.
    ///
    /// # Errors
    /// As for [`Exec::next`].
    pub async fn next(&mut self) -> Result<Option<Event>> {
        let event = self.exec.next().await;
        match &event {
            Ok(Some(Event::End(info))) => {
                let exit = match &info.state {
                    State::Exited(exit) => Some(exit.code),
                    _ => None,
                };
                self.record(Ok(Effect { bytes: Some(info.output_bytes), exit }))?;
            }
            Err(error) => self.record(Err(error))?,
            _ => {}
        }
        event
    }

    /// A way to send input and signals.
    pub fn control(&self) -> Control {
        self.exec.control()
    }

    fn record(&mut self, result: Result<Effect, &podbay_client::Error>) -> Result<()> {
        self.operation.take().map_or(Ok(()), |operation| self.audit.end(operation, result))
    }
}

impl Drop for GuardedExec {
    fn drop(&mut self) {
        let seen = Effect { bytes: Some(self.exec.offset()), exit: None };
        if let Err(error) = self.record(Ok(seen)) {
            tracing::warn!(%error, "a command's record couldn't be finished");
        }
    }
}
