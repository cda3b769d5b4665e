//! Rules and audit as the guard of a sandbox: the only place that begins and ends entries of the audit log.

use std::sync::Arc;

use podbay_client::files::Scope;
use podbay_client::{Command, Content, Effect, Ending, Error, Guard, Result, Sandbox, Subject, Ticket};

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
    fn narrow(&self, scope: &mut Scope) -> Result<()> {
        if !self.policy.paths_are_free() {
            *scope = self.policy.narrow(scope)?;
        }
        Ok(())
    }

    fn check(&self, command: &Command) -> Result<()> {
        Ok(self.policy.check(command)?)
    }

    fn begin(
        &self,
        action: &'static str,
        subject: Subject<'_>,
        scope: Option<&Scope>,
        content: Content<'_>,
    ) -> Result<Ticket> {
        let details = || match scope {
            Some(scope) => details(subject, content).within(scope),
            None => details(subject, content),
        };
        Ok(Box::new(self.audit.begin(&self.sandbox, action, details)?))
    }

    fn end(&self, ticket: Ticket, Ending { error, denied, effect: done }: Ending<'_>) -> Result<()> {
        let Ok(operation) = ticket.downcast::<audit::PendingOperation>() else { return Ok(()) };
        match error {
            None => self.audit.end(*operation, Ok(effect(done))),
            Some(error) if denied => self.audit.deny(*operation, error),
            // Nobody knows how much of what was sent has arrived.
            Some(error) => self.audit.fail(*operation, error, audit::RecordedEffect { bytes: None, ..effect(done) }),
        }
    }

    fn end_failed_unheard(&self, error: &Error) {
        self.audit.end_failed_unheard(&error.to_string());
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
        Subject::Path(path) => match content {
            Content::Bytes(bytes) => Details::below(path).with_content(bytes),
            Content::Stream(size) => Details::below(path).with_size(size),
            _ => Details::below(path),
        },
        Subject::Output { path, id, cap } => Details::path(path).with_output_of(id, cap, bytes.unwrap_or_default()),
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

/// What is recorded of sandboxes as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    Create,
    Reconnect,
    Destroy,
    Suspend,
    Resume,
    Cleanup,
    Refill,
    Describe,
}

impl Lifecycle {
    /// The name in the audit log.
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Reconnect => "reconnect",
            Self::Destroy => "destroy",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Cleanup => "cleanup",
            Self::Refill => "refill",
            Self::Describe => "describe",
        }
    }
}

/// Records what is done to a sandbox as a whole, or, with an empty id, to several of them. `effect` says what it did.
pub(crate) async fn recorded<T>(
    audit: &Audit,
    operation: Lifecycle,
    id: &str,
    mode: &str,
    work: impl Future<Output = Result<T>>,
    effect: impl FnOnce(&T) -> audit::RecordedEffect,
) -> Result<T> {
    let operation = audit.begin(id, operation.as_str(), || Details::sandbox(id, mode))?;
    let result = work.await;
    audit.end(operation, result.as_ref().map(effect))?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page lacked `suspend` and `resume`.
    #[test]
    fn the_page_about_the_audit_log_lists_what_is_done_to_sandboxes_as_a_whole() {
        use Lifecycle::*;
        let all = [Create, Reconnect, Destroy, Suspend, Resume, Cleanup, Refill, Describe];
        let names = all.map(|operation| format!("`{}`", operation.as_str())).join(", ");
        let row = format!("| {names} | on sandboxes as a whole |");
        assert!(include_str!("../../../docs/audit.md").contains(&row), "docs/audit.md lacks the row\n{row}");
    }
}
