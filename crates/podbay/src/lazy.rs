//! A sandbox that is created when it is first used, and deleted when it is closed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use podbay_client::provider::{Launch, Wanted};
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
    /// Whether this object created the sandbox. It is remembered because a handle that is opened again only finds it.
    made: AtomicBool,
    /// Whether closing leaves the sandbox as it is.
    keep: AtomicBool,
    /// Whether the sandbox has to exist.
    attach: AtomicBool,
}

impl LazySandbox {
    pub(crate) fn new(podbay: Podbay, wanted: Wanted) -> Self {
        let id = wanted.id.clone().unwrap_or_else(new_id);
        let wanted = Wanted { id: Some(id.clone()), ..wanted };
        let [closed, made, keep, attach] = [(); 4].map(|()| AtomicBool::new(false));
        let (open, changing) = (RwLock::new(None), tokio::sync::Mutex::new(()));
        Self(Arc::new(Inner { podbay, wanted, id, open, changing, closed, made, keep, attach }))
    }

    /// The same sandbox, which [`close`](Self::close) leaves as it is: it lives until it is deleted or expires.
    #[must_use]
    pub fn kept(self) -> Self {
        self.0.keep.store(true, Ordering::Release);
        self
    }

    /// The same sandbox, which has to exist: using it never creates one, and fails with `SandboxNotFound` if there is none.
    #[must_use]
    pub fn attached(self) -> Self {
        self.0.attach.store(true, Ordering::Release);
        self
    }

    /// Wraps an existing sandbox.
    pub fn of(podbay: &Podbay, sandbox: Sandbox) -> Self {
        let lazy = Self::new(podbay.clone(), Wanted::from(sandbox.id()));
        lazy.0.made.store(sandbox.created(), Ordering::Release);
        lazy.0.put(Some(sandbox));
        lazy
    }

    /// The `Podbay` that it belongs to.
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
        self.current().map(|_| self.0.made.load(Ordering::Acquire))
    }

    /// How the sandbox was started; nothing before it is first used, or where that isn't known.
    pub fn launch(&self) -> Option<Launch> {
        self.current().and_then(|sandbox| sandbox.launch())
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
    /// When the returned future is dropped, the creation continues: the next call, and [`close`](Self::close), find its result.
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
        if self.0.made.load(Ordering::Acquire) && !self.0.keep.load(Ordering::Acquire) {
            self.0.podbay.delete(&self.id()).await?;
            self.0.made.store(false, Ordering::Release);
        }
        self.0.put(None);
        Ok(())
    }

    /// Lets go of the sandbox without deleting or closing it. The next use finds it again, or creates it anew if it has ended.
    pub fn disconnect(&self) {
        self.0.put(None);
    }

    /// Ends the sandbox's processes and keeps what is on its persistent volumes. The next use resumes it, unless the settings
    /// say otherwise.
    ///
    /// # Errors
    /// `unsupported` where a mode can't; `SandboxNotFound`.
    pub async fn suspend(&self) -> Result<()> {
        let _changing = self.0.changing.lock().await;
        self.0.podbay.suspend(&self.id()).await?;
        self.0.put(None);
        Ok(())
    }

    /// Makes a suspended sandbox usable again.
    ///
    /// # Errors
    /// `unsupported` where a mode can't; `SandboxNotFound`.
    pub async fn resume(&self) -> Result<()> {
        let _changing = self.0.changing.lock().await;
        self.0.podbay.resume(&self.id()).await
    }

    /// Deletes the sandbox, whoever created it. Returns whether it existed.
    ///
    /// # Errors
    /// When it can't be deleted.
    pub async fn destroy(&self) -> Result<bool> {
        let _changing = self.0.changing.lock().await;
        self.0.closed.store(true, Ordering::Release);
        let deleted = self.0.podbay.delete(&self.id()).await?;
        self.0.made.store(false, Ordering::Release);
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
        let sandbox = match self.attach.load(Ordering::Acquire) {
            true => self.podbay.reconnect(&self.id).await?,
            false => self.podbay.get_or_create(self.wanted.clone()).await?,
        };
        if sandbox.created() {
            self.made.store(true, Ordering::Release);
        }
        self.put(Some(sandbox.clone()));
        Ok(sandbox)
    }
}
