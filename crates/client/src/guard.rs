//! The hook for rules and audit. A request can't be sent without a [`Permit`], and this module is the only one that makes them.

use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use podbay_proto::exec::Command;
use podbay_proto::files::Scope;
use podbay_proto::session::Hello;
use podbay_proto::{ErrorCode, Operation, Subject, VERSION};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};

/// Decides on every operation of a sandbox before it is sent, and is told how it ended: rules and audit are implemented with this.
///
/// A sandbox gets one by [`Sandbox::guarded`](crate::Sandbox::guarded).
pub trait Guard: std::fmt::Debug + Send + Sync {
    /// Confines an operation's paths further.
    ///
    /// # Errors
    /// `policy_denied`, when the scope can't be combined with the guard's own. Nothing is sent then.
    fn narrow(&self, scope: &mut Scope) -> Result<()>;

    /// Decides on a command that is to be started, with the variables that its caller sets.
    ///
    /// # Errors
    /// `policy_denied`, when it may not run.
    fn check(&self, command: &Command) -> Result<()>;

    /// An operation is about to begin: `action` is its name for users, `subject` what it touches, `content` what it sends. What its
    /// paths mean depends on its `scope`, which has been [narrowed](Self::narrow).
    ///
    /// # Errors
    /// When it may not begin, because it can't be recorded. Nothing is sent then.
    fn begin(
        &self,
        action: &'static str,
        subject: Subject<'_>,
        scope: Option<&Scope>,
        content: Content<'_>,
    ) -> Result<Ticket>;

    /// The operation has ended. One whose caller gave up ends with the code `cancelled`.
    ///
    /// # Errors
    /// When that can't be recorded. The caller gets this error in place of the result.
    fn end(&self, ticket: Ticket, ending: Ending<'_>) -> Result<()>;

    /// [`end`](Self::end) failed, and there is no caller to tell: it gave up, or dropped the command that it followed.
    fn end_failed_unheard(&self, error: &Error);

    /// Whether an upload that is streamed should end with the digest of what was sent, [`Effect::sha256`].
    fn wants_digests(&self) -> bool {
        false
    }
}

/// What a guard remembers of an operation between its beginning and its end.
pub type Ticket = Box<dyn Any + Send + Sync>;

/// What an operation sends to the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content<'a> {
    /// Nothing but its request.
    Nothing,
    /// These bytes: a file's content, the two texts of an edit, a command's input.
    Bytes(&'a [u8]),
    /// This many bytes of a file, which is read while it is sent.
    Stream(u64),
}

impl<'a> Content<'a> {
    pub(crate) fn of(payload: &'a [u8]) -> Self {
        if payload.is_empty() { Self::Nothing } else { Self::Bytes(payload) }
    }
}

/// How an operation ended.
#[derive(Debug, Clone, Copy)]
pub struct Ending<'a> {
    /// Why it failed, if it did.
    pub error: Option<&'a Error>,
    /// Whether it failed because [`Guard::check`] denied it, so that nothing was sent. Any other error may be the sandbox's answer,
    /// and no more reliable than the sandbox.
    pub denied: bool,
    /// What it did. If it failed, this is as much of a [stream](Content::Stream) as was sent by then.
    pub effect: Effect,
}

/// What an operation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effect {
    /// How many bytes were read, written or printed.
    pub bytes: Option<u64>,
    /// A command's exit code.
    pub exit: Option<i32>,
    /// The SHA-256 of what was sent, if the guard [wants it](Guard::wants_digests) and it was [streamed](Content::Stream).
    pub sha256: Option<[u8; 32]>,
}

impl Effect {
    /// So many bytes were read, written or printed.
    pub(crate) fn bytes(bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..Self::default() }
    }
}

/// What has been sent of a stream so far: the operation may end at any time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent(Arc<Mutex<SentOnce>>);

/// What has been sent in one attempt: how much, and its digest.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentOnce(Arc<Mutex<(u64, Sha256)>>);

impl Sent {
    /// It is sent from the beginning. Whoever sent it before may not have noticed yet that it is over.
    pub(crate) fn attempt(&self) -> SentOnce {
        let attempt = SentOnce::default();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = attempt.clone();
        attempt
    }

    fn effect(&self) -> Effect {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (bytes, digest) = last.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Effect { bytes: Some(bytes), exit: None, sha256: Some(digest.finalize().into()) }
    }
}

impl SentOnce {
    /// This has been sent.
    pub(crate) fn add(&self, piece: &[u8]) {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sent.0 += piece.len() as u64;
        sent.1.update(piece);
    }
}

/// Two guards, one in front of the other.
#[derive(Debug)]
pub(crate) struct Both(pub(crate) Arc<dyn Guard>, pub(crate) Arc<dyn Guard>);

impl Guard for Both {
    fn narrow(&self, scope: &mut Scope) -> Result<()> {
        self.0.narrow(scope)?;
        self.1.narrow(scope)
    }

    fn check(&self, command: &Command) -> Result<()> {
        self.0.check(command)?;
        self.1.check(command)
    }

    fn begin(
        &self,
        action: &'static str,
        subject: Subject<'_>,
        scope: Option<&Scope>,
        content: Content<'_>,
    ) -> Result<Ticket> {
        let first = Open::begin(&self.0, action, subject, scope, content)?;
        let second = Open::begin(&self.1, action, subject, scope, content)?;
        Ok(Box::new((first, second)))
    }

    fn end(&self, ticket: Ticket, ending: Ending<'_>) -> Result<()> {
        let Ok(both) = ticket.downcast::<(Open, Open)>() else { return Ok(()) };
        let (mut first, mut second) = *both;
        let ended = second.end_as(ending);
        first.end_as(ending).and(ended)
    }

    fn end_failed_unheard(&self, error: &Error) {
        self.0.end_failed_unheard(error);
        self.1.end_failed_unheard(error);
    }

    fn wants_digests(&self) -> bool {
        self.0.wants_digests() || self.1.wants_digests()
    }
}

/// An operation that has begun and hasn't ended. Dropping it ends it as cancelled.
#[derive(Debug)]
struct Open {
    guard: Arc<dyn Guard>,
    ticket: Option<Ticket>,
    /// What is streamed, if the guard wants to know.
    sent: Option<Sent>,
}

impl Open {
    fn begin(
        guard: &Arc<dyn Guard>,
        action: &'static str,
        subject: Subject<'_>,
        scope: Option<&Scope>,
        content: Content<'_>,
    ) -> Result<Self> {
        let ticket = guard.begin(action, subject, scope, content)?;
        let sent = (matches!(content, Content::Stream(_)) && guard.wants_digests()).then(Sent::default);
        Ok(Self { guard: guard.clone(), ticket: Some(ticket), sent })
    }

    fn end(&mut self, result: Result<Effect, &Error>) -> Result<()> {
        let sent = self.sent.as_ref().map(Sent::effect).unwrap_or_default();
        self.end_as(match result {
            Ok(effect) => Ending { error: None, denied: false, effect: Effect { sha256: sent.sha256, ..effect } },
            Err(error) => Ending { error: Some(error), denied: false, effect: sent },
        })
    }

    fn end_as(&mut self, ending: Ending<'_>) -> Result<()> {
        self.ticket.take().map_or(Ok(()), |ticket| self.guard.end(ticket, ending))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.ticket.is_none() {
            return;
        }
        let message = "the caller gave up before the operation ended";
        let cancelled = podbay_proto::Error::new(ErrorCode::Cancelled, message).into();
        if let Err(error) = self.end(Err(&cancelled)) {
            self.guard.end_failed_unheard(&error);
        }
    }
}

/// A request that may be sent.
#[derive(Debug)]
pub(crate) struct Permit<O> {
    request: O,
    open: Option<Open>,
}

impl<O> Deref for Permit<O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.request
    }
}

impl Permit<Hello> {
    /// The first request on a connection, which touches nothing.
    pub(crate) fn hello() -> Self {
        Self { request: Hello { version: VERSION }, open: None }
    }
}

impl<O: Operation> Permit<O> {
    /// Asks the guard, if there is one.
    pub(crate) fn new(
        guard: Option<&Arc<dyn Guard>>,
        action: &'static str,
        request: O,
        content: Content<'_>,
    ) -> Result<Self> {
        Self::asked(guard, action, request, None, content)
    }

    /// Asks the guard, which decides on the command that was `asked` for, if that isn't the request's: variables that the
    /// sandbox's owner gives every command aren't the caller's.
    pub(crate) fn asked(
        guard: Option<&Arc<dyn Guard>>,
        action: &'static str,
        mut request: O,
        asked: Option<&Command>,
        content: Content<'_>,
    ) -> Result<Self> {
        let Some(guard) = guard else { return Ok(Self { request, open: None }) };
        let narrowed = request.scope_mut().map_or(Ok(()), |scope| guard.narrow(scope));
        let scope = request.scope_mut().cloned();
        let mut open = Open::begin(guard, action, request.subject(), scope.as_ref(), content)?;
        let decided = narrowed.and_then(|()| match request.subject() {
            Subject::Command { command, .. } => guard.check(asked.unwrap_or(command)),
            _ => Ok(()),
        });
        if let Err(denied) = decided {
            open.end_as(Ending { error: Some(&denied), denied: true, effect: Effect::default() })?;
            return Err(denied);
        }
        Ok(Self { request, open: Some(open) })
    }

    /// A request that is part of an operation for which there is a permit already, such as each piece of a command's input.
    pub(crate) fn part(request: O) -> Self {
        Self { request, open: None }
    }

    /// Where to note what is streamed, if the guard wants to know.
    pub(crate) fn sent(&self) -> Option<Sent> {
        self.open.as_ref().and_then(|open| open.sent.clone())
    }

    /// The request, to change what differs from one try to the next: an offset, never a path or a command.
    pub(crate) fn request_mut(&mut self) -> &mut O {
        &mut self.request
    }

    /// The operation has ended; only the first call counts.
    pub(crate) fn end(&mut self, result: Result<Effect, &Error>) -> Result<()> {
        self.open.as_mut().map_or(Ok(()), |open| open.end(result))
    }

    /// The same, where there is no caller to tell if that fails.
    pub(crate) fn end_unheard(&mut self, effect: Effect) {
        let Some(open) = &mut self.open else { return };
        if let Err(error) = open.end(Ok(effect)) {
            open.guard.end_failed_unheard(&error);
        }
    }

    /// The operation has ended with this result.
    pub(crate) fn finish<T>(mut self, result: Result<T>, effect: impl FnOnce(&T) -> Effect) -> Result<T> {
        if self.open.is_some() {
            self.end(result.as_ref().map(effect))?;
        }
        result
    }
}

/// An operation of several requests, each of which needs a permit of its own: the transfer of a directory.
#[derive(Debug)]
pub(crate) struct Several(Option<Open>);

impl Several {
    pub(crate) fn begin(guard: Option<&Arc<dyn Guard>>, action: &'static str, subject: Subject<'_>) -> Result<Self> {
        guard.map(|guard| Open::begin(guard, action, subject, None, Content::Nothing)).transpose().map(Self)
    }

    pub(crate) fn finish<T>(mut self, result: Result<T>) -> Result<T> {
        if let Some(open) = &mut self.0 {
            open.end(result.as_ref().map(|_| Effect::default()))?;
        }
        result
    }
}
