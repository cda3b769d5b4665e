//! A sandbox that is created when it is first used, and deleted when it is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use podbay_client::provider::Wanted;
use podbay_client::{Error, Result, Sandbox};

use crate::podbay::{Podbay, new_id};

/// A sandbox that is created, or found, when it is first used. Cheap to clone; all clones are the same object.
///
/// Language bindings are made of this: their objects exist before anything can be awaited, and end when a block does.
#[derive(Debug, Clone)]
pub struct LazySandbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    podbay: Podbay,
    wanted: Wanted,
    /// The id that it has, or will have.
    id: String,
    open: RwLock<Option<Sandbox>>,
    /// Held while it is created or closed.
    changing: tokio::sync::Mutex<()>,
    closed: AtomicBool,
}

impl LazySandbox {
    pub(crate) fn new(podbay: Podbay, wanted: Wanted) -> Self {
        let id = wanted.id.clone().unwrap_or_else(new_id);
        let wanted = Wanted { id: Some(id.clone()), ..wanted };
        let (open, changing, closed) = (RwLock::new(None), tokio::sync::Mutex::new(()), AtomicBool::new(false));
        Self(Arc::new(Inner { podbay, wanted, id, open, changing, closed }))
    }

    /// A sandbox that is there already.
    pub fn of(podbay: &Podbay, sandbox: Sandbox) -> Self {
        let lazy = Self::new(podbay.clone(), Wanted::from(sandbox.id()));
        lazy.0.put(Some(sandbox));
        lazy
    }

    /// The object that it comes from.
    pub fn podbay(&self) -> &Podbay {
        &self.0.podbay
    }

    /// The sandbox's id, known before the sandbox is created.
    pub fn id(&self) -> String {
        self.current().map_or_else(|| self.0.id.clone(), |sandbox| sandbox.id().to_owned())
    }

    /// The sandbox, if it was used before and isn't closed.
    pub fn current(&self) -> Option<Sandbox> {
        self.0.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this object created the sandbox, or found it; nothing before it is first used.
    pub fn created(&self) -> Option<bool> {
        self.current().map(|sandbox| sandbox.created())
    }

    /// Whether it replaces one that was given out for the same thread before and that has ended.
    pub fn replaced(&self) -> bool {
        self.current().is_some_and(|sandbox| sandbox.replaced())
    }

    /// Whether it was closed.
    pub fn closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// The sandbox, which is created now if it wasn't before.
    ///
    /// When the returned future is dropped, the creation goes on: the next call, and [`close`](Self::close), find its result.
    ///
    /// # Errors
    /// When it can't be created, or was closed.
    pub async fn open(&self) -> Result<Sandbox> {
        if let Some(sandbox) = self.current() {
            return Ok(sandbox);
        }
        // In a task of its own: a caller that is cancelled would leave behind a sandbox that nobody deletes.
        let inner = self.0.clone();
        match tokio::spawn(async move { inner.create().await }).await {
            Ok(created) => created,
            Err(error) => {
                Err(Error::Provider(format!("creating the sandbox {} was interrupted: {error}", self.0.id).into()))
            }
        }
    }

    /// Deletes the sandbox if this object created it, and lets go of it otherwise. Closing again does nothing, or tries again what
    /// failed.
    ///
    /// # Errors
    /// When it can't be deleted.
    pub async fn close(&self) -> Result<()> {
        let _changing = self.0.changing.lock().await;
        self.0.closed.store(true, Ordering::Release);
        // It is kept until it is gone: a deletion that failed or was cancelled can be tried again.
        if let Some(sandbox) = self.current().filter(Sandbox::created) {
            sandbox.destroy().await?;
        }
        self.0.put(None);
        Ok(())
    }

    /// Deletes the sandbox, whoever created it. Returns whether it existed.
    ///
    /// # Errors
    /// When it can't be deleted.
    pub async fn destroy(&self) -> Result<bool> {
        let _changing = self.0.changing.lock().await;
        self.0.closed.store(true, Ordering::Release);
        let deleted = self.0.podbay.delete(&self.id()).await?;
        self.0.put(None);
        Ok(deleted)
    }
}

impl Inner {
    fn put(&self, sandbox: Option<Sandbox>) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = sandbox;
    }

    async fn create(&self) -> Result<Sandbox> {
        let _changing = self.changing.lock().await;
        if let Some(sandbox) = self.open.read().unwrap_or_else(PoisonError::into_inner).clone() {
            return Ok(sandbox);
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed(self.id.clone()));
        }
        let sandbox = self.podbay.get_or_create(self.wanted.clone()).await?;
        self.put(Some(sandbox.clone()));
        Ok(sandbox)
    }
}
