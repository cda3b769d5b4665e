//! Rules and audit as the guard of a sandbox: the only place that begins and ends entries of the audit log.

use std::sync::Arc;

use podbay_client::files::Scope;
use podbay_client::{Command, Content, Effect, Error, Guard, Result, Sandbox, Subject, Ticket};

use crate::audit::{self, Audit, Details, Digest};
use crate::policy::Policy;

/// What holds for one sandbox.
#[derive(Debug)]
struct Rules {
    sandbox: String,
    policy: Policy,
    audit: Audit,
}

/// A sandbox whose operations obey a policy and are recorded.
pub(crate) fn guarded(sandbox: &Sandbox, id: &str, policy: &Policy, audit: &Audit) -> Sandbox {
    sandbox.guarded(Arc::new(Rules { sandbox: id.to_owned(), policy: policy.clone(), audit: audit.clone() }))
}

impl Guard for Rules {
    fn narrow(&self, scope: &mut Scope) {
        if !self.policy.paths_are_free() {
            *scope = self.policy.narrow(scope);
        }
    }

    fn check(&self, command: &Command) -> Result<()> {
        Ok(self.policy.check(command)?)
    }

    fn begin(&self, action: &'static str, subject: Subject<'_>, content: Content<'_>) -> Result<Ticket> {
        Ok(Box::new(self.audit.begin(&self.sandbox, action, || details(subject, content))?))
    }

    fn end(&self, ticket: Ticket, result: Result<Effect, &Error>) -> Result<()> {
        let Ok(operation) = ticket.downcast::<audit::PendingOperation>() else { return Ok(()) };
        self.audit.end(*operation, result.map(effect))
    }

    fn wants_digests(&self) -> bool {
        self.audit.is_on()
    }
}

/// What the audit log records of an operation that is about to begin.
fn details(subject: Subject<'_>, content: Content<'_>) -> Details {
    let bytes = match content {
        Content::Bytes(bytes) => Some(bytes),
        _ => None,
    };
    let input = |details: Details| match bytes {
        Some(bytes) => details.with_input(bytes),
        None => details,
    };
    match subject {
        Subject::Sandbox => Details::none(),
        Subject::Path(path) => match bytes {
            Some(bytes) => Details::below(path).with_content(bytes),
            None => Details::below(path),
        },
        Subject::Move { from, to } => Details::between(from, to),
        Subject::Search { path, pattern } => Details::below(path).with_pattern(pattern),
        Subject::Edit { path, old_length } => Details::path(path).with_edit(bytes.unwrap_or_default(), old_length),
        Subject::Command { id, command } => input(Details::command(command).with_id(id)),
        Subject::Exec(id) => Details::exec(id),
        Subject::Input { id, close: false, .. } => input(Details::exec(id)),
        Subject::Input { id, close: true, .. } => input(Details::exec(id)).closing_input(),
        Subject::Signal { id, signal, target } => Details::exec(id).with_signal(signal, target),
    }
}

/// What it records of what an operation did.
fn effect(effect: Effect) -> audit::RecordedEffect {
    let content = effect.sha256.zip(effect.bytes).map(|(sha256, bytes)| Digest::new(bytes, &sha256));
    audit::RecordedEffect { bytes: effect.bytes, exit: effect.exit, content, ..audit::RecordedEffect::default() }
}

/// Records what is done to a sandbox as a whole. `changed` says whether it was created or deleted by this.
pub(crate) async fn recorded<T>(
    audit: &Audit,
    op: &'static str,
    id: &str,
    mode: &str,
    work: impl Future<Output = Result<T>>,
    changed: impl FnOnce(&T) -> bool,
) -> Result<T> {
    let operation = audit.begin(id, op, || Details::sandbox(id, mode))?;
    let result = work.await;
    let effect =
        |value: &T| audit::RecordedEffect { changed: Some(changed(value)), ..audit::RecordedEffect::default() };
    audit.end(operation, result.as_ref().map(effect))?;
    result
}
