//! Rules and audit as the guard of a sandbox: the only place that begins and ends entries of the audit log.

use std::sync::Arc;

use podbay_client::files::Scope;
use podbay_client::{Command, Content, Effect, Error, Guard, Result, Sandbox, Subject, Ticket};

use crate::audit::{self, Audit};
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

    fn begin(&self, action: &'static str, subject: Subject<'_>, _: Content<'_>) -> Result<Ticket> {
        Ok(Box::new(self.audit.begin(&self.sandbox, action, subject.to_string())?))
    }

    fn end(&self, ticket: Ticket, result: Result<Effect, &Error>) -> Result<()> {
        let Ok(operation) = ticket.downcast::<audit::Operation>() else { return Ok(()) };
        self.audit.end(*operation, result.map(|effect| audit::Effect { bytes: effect.bytes, exit: effect.exit }))
    }
}

/// Records that a sandbox is created or deleted.
pub(crate) async fn recorded<T>(
    audit: &Audit,
    op: &'static str,
    id: &str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let operation = audit.begin(id, op, id.to_owned())?;
    let result = work.await;
    audit.end(operation, result.as_ref().map(|_| audit::Effect::default()))?;
    result
}
