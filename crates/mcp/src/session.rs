//! The sandbox of one MCP session.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use podbay::provider::{Phase, Wanted};
use podbay::{Error, LazySandbox, Podbay, Sandbox};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc};

use crate::options::Options;

/// How many tool calls of one session run at once. Further ones are refused.
const AT_ONCE: usize = 64;

/// One of the sessions that a server allows. It is free again when whoever shares it has let go of it.
pub(crate) type SessionSlot = Arc<OwnedSemaphorePermit>;

/// Where sandboxes go whose session ended, to be deleted. Until then they keep the session's slot.
pub(crate) type Leftovers = mpsc::UnboundedSender<(LazySandbox, SessionSlot)>;

/// One MCP session: a sandbox that is created when the first tool needs it.
#[derive(Debug)]
pub(crate) struct Session {
    podbay: Podbay,
    options: Arc<Options>,
    lazy: RwLock<LazySandbox>,
    calls: Semaphore,
    /// For one of many sessions with a sandbox of their own.
    counted: Option<Counted>,
}

/// What counts a session's sandbox among those of a server.
#[derive(Debug)]
struct Counted {
    /// None before the session is opened.
    slot: OnceLock<SessionSlot>,
    leftovers: Leftovers,
}

impl Session {
    /// A session without a sandbox so far. With `leftovers` it is one of many: it can be used once it has a slot, and
    /// when it is dropped its sandbox goes there.
    pub(crate) fn new(podbay: &Podbay, options: &Arc<Options>, leftovers: Option<Leftovers>) -> Self {
        Self {
            podbay: podbay.clone(),
            options: options.clone(),
            lazy: RwLock::new(podbay.lazy(wanted(options))),
            calls: Semaphore::new(AT_ONCE),
            counted: leftovers.map(|leftovers| Counted { slot: OnceLock::new(), leftovers }),
        }
    }

    /// Takes one of the server's slots for sessions.
    pub(crate) fn take(&self, slot: SessionSlot) {
        if let Some(counted) = &self.counted {
            // The first one counts: a client may initialize twice.
            let _ = counted.slot.set(slot);
        }
    }

    /// Whether it may be used. A request outside of every session has a `Session` too, which nobody has opened or counted.
    pub(crate) fn is_open(&self) -> bool {
        self.counted.as_ref().is_none_or(|counted| counted.slot.get().is_some())
    }

    /// What the server allows.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Whether the sandbox ends with the session.
    pub(crate) fn owns_sandbox(&self) -> bool {
        self.options.sandbox.is_none()
    }

    /// Room for one more tool call; none when too many run.
    pub(crate) fn enter(&self) -> Option<SemaphorePermit<'_>> {
        self.calls.try_acquire().ok()
    }

    /// The sandbox, if a tool has used it.
    pub(crate) fn current(&self) -> Option<Sandbox> {
        self.lazy().current()
    }

    /// The sandbox, created now if need be.
    pub(crate) async fn open(&self) -> Result<Sandbox, Error> {
        self.lazy().open().await
    }

    fn lazy(&self) -> LazySandbox {
        self.lazy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// After a failure: whether the sandbox has ended. The next tool call then gets a new one.
    pub(crate) async fn lost_sandbox(&self, error: &Error) -> bool {
        if !matches!(error, Error::Unreachable { .. } | Error::SandboxNotFound(_) | Error::Provider(_)) {
            return false;
        }
        let lazy = self.lazy();
        if lazy.current().is_none() {
            return false;
        }
        let gone = match self.podbay.describe(&lazy.id()).await {
            Ok(description) => description.listed.phase == Phase::Terminated,
            Err(error) => matches!(error, Error::SandboxNotFound(_)),
        };
        if gone {
            let mut current = self.lazy.write().unwrap_or_else(PoisonError::into_inner);
            // Another call may have noticed it before.
            if current.id() == lazy.id() {
                *current = self.podbay.lazy(wanted(&self.options));
            }
        }
        gone
    }

    /// Deletes the session's own sandbox.
    pub(crate) async fn close(&self) -> Result<(), Error> {
        match self.owns_sandbox() {
            true => self.lazy().close().await,
            false => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(Counted { mut slot, leftovers }) = self.counted.take()
            && let Some(slot) = slot.take()
        {
            // A server that has ended deletes nothing any more; what is left ends by its leash or its lifetime.
            let _ = leftovers.send((self.lazy(), slot));
        }
    }
}

fn wanted(options: &Options) -> Wanted {
    match &options.sandbox {
        // It outlives the session, so it isn't tied to this process.
        Some(name) => Wanted { id: Some(name.clone()), leashed: false, ..options.wanted.clone() },
        None => Wanted { id: None, ..options.wanted.clone() },
    }
}
