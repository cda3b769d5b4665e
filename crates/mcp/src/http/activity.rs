//! Which sessions are in use.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::request::Parts;
use rmcp::RoleServer;
use rmcp::service::RequestContext;

use super::tokens::Owner;
use crate::session::SessionSlot;

/// A session as access control knows it.
#[derive(Debug)]
pub(crate) struct Entry {
    owner: Owner,
    slot: SessionSlot,
    calls: AtomicUsize,
    used: Mutex<Instant>,
}

impl Entry {
    pub(super) fn new(owner: Owner, slot: SessionSlot) -> Self {
        Self { owner, slot, calls: AtomicUsize::new(0), used: Mutex::new(Instant::now()) }
    }

    /// Whether whoever asks opened it.
    pub(super) fn belongs_to(&self, owner: Owner) -> bool {
        self.owner == owner
    }

    /// It is used now.
    pub(super) fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long it wasn't used; not at all while a call runs.
    pub(super) fn idle(&self) -> Duration {
        match self.calls.load(Ordering::Acquire) {
            0 => self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed(),
            _ => Duration::ZERO,
        }
    }
}

/// A call that keeps its session in use until it is dropped.
#[derive(Debug)]
pub(crate) struct Active(Option<Arc<Entry>>);

/// The slot of the session that a request opens. Over other transports there is none.
pub(crate) fn slot(context: &RequestContext<RoleServer>) -> Option<SessionSlot> {
    entry(context).map(|entry| entry.slot.clone())
}

fn entry(context: &RequestContext<RoleServer>) -> Option<&Arc<Entry>> {
    context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Arc<Entry>>())
}

/// Keeps the session of a request in use. Over other transports there is nothing to keep.
pub(crate) fn of(context: &RequestContext<RoleServer>) -> Active {
    let entry = entry(context);
    if let Some(entry) = entry {
        entry.calls.fetch_add(1, Ordering::AcqRel);
    }
    Active(entry.cloned())
}

impl Drop for Active {
    fn drop(&mut self) {
        if let Some(entry) = &self.0 {
            entry.touch();
            entry.calls.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
