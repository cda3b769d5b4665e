//! One sandbox: made when it is first used, deleted when it is closed.

mod commands;
mod files;
mod transfers;

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use podbay::Guarded;
use podbay::provider::{Provided, Wanted};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::coroutine::Coroutine;
use crate::failure::Failure;
use crate::place::{self, Arguments, Place};
use crate::results::providers::Welcome;
use crate::runtime::block;
use crate::text::{Labels, Nothing};
use crate::twins::twins;

/// A sandbox that is there.
pub struct Open {
    /// It, behind rules and record.
    pub guarded: Guarded,
    sandbox: podbay::Sandbox,
    id: String,
    created: bool,
    replaced: bool,
    /// While this lives, a leashed sandbox does.
    _leash: Option<Box<dyn Any + Send + Sync>>,
}

/// What a sandbox's Python object, its commands and its coroutines share.
pub struct Inner {
    place: Arc<Place>,
    wanted: Wanted,
    /// The id that it has, or will have where the provider can.
    id: String,
    open: RwLock<Option<Arc<Open>>>,
    /// Held while it is made or closed.
    changing: tokio::sync::Mutex<()>,
    closed: AtomicBool,
}

impl Inner {
    /// One that is to be made when it is needed.
    pub fn wanted(place: Arc<Place>, wanted: Wanted) -> Arc<Self> {
        let id = wanted.id.clone().unwrap_or_else(|| format!("pb-{:016x}", rand::random::<u64>()));
        let wanted = Wanted { id: Some(id.clone()), ..wanted };
        let (open, changing, closed) = (RwLock::new(None), tokio::sync::Mutex::new(()), AtomicBool::new(false));
        Arc::new(Self { place, wanted, id, open, changing, closed })
    }

    /// One that a provider has found or made.
    pub fn provided(place: Arc<Place>, provided: Provided) -> Arc<Self> {
        let inner = Self::wanted(place, Wanted { id: Some(provided.id.clone()), ..Wanted::default() });
        inner.keep(provided, false);
        inner
    }

    /// One that a manager has found or made.
    pub fn acquired(place: Arc<Place>, acquired: podbay::Acquired) -> Arc<Self> {
        let podbay::Acquired { sandbox, id, created, replaced, leash } = acquired;
        let inner = Self::wanted(place, Wanted { id: Some(id.clone()), ..Wanted::default() });
        inner.keep(Provided { id, sandbox, created, leash }, replaced);
        inner
    }

    fn keep(&self, provided: Provided, replaced: bool) -> Arc<Open> {
        let guarded = self.place.guard(&provided);
        let Provided { id, sandbox, created, leash } = provided;
        let open = Arc::new(Open { guarded, sandbox, id, created, replaced, _leash: leash });
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = Some(open.clone());
        open
    }

    fn current(&self) -> Option<Arc<Open>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The sandbox, which is made now if it wasn't before.
    pub async fn open(self: &Arc<Self>) -> Result<Arc<Open>, Failure> {
        if let Some(open) = self.current() {
            return Ok(open);
        }
        // In a task of its own: who waits may be cancelled, and what was half made would then be nobody's to delete.
        let inner = self.clone();
        match tokio::spawn(async move { inner.make().await }).await {
            Ok(made) => made,
            Err(error) => Err(Failure::Runtime(format!("making the sandbox {} broke off: {error}", self.id))),
        }
    }

    async fn make(&self) -> Result<Arc<Open>, Failure> {
        let _changing = self.changing.lock().await;
        if let Some(open) = self.current() {
            return Ok(open);
        }
        if self.closed.load(Ordering::Acquire) {
            let message =
                format!("the sandbox {} was closed; make a new Sandbox, or use it inside its 'with' block", self.id);
            return Err(Failure::Closed(message));
        }
        let provided = self.place.provider().await?.get_or_create(&self.wanted).await?;
        Ok(self.keep(provided, false))
    }

    /// Ends what this object made; what it only found stays.
    async fn close(&self) -> Result<(), Failure> {
        let _changing = self.changing.lock().await;
        self.closed.store(true, Ordering::Release);
        // It is taken out only when it is gone: a delete that failed or was cancelled can be tried again.
        if let Some(open) = self.current().filter(|open| open.created) {
            self.place.provider().await?.delete(&open.id).await?;
        }
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// Deletes the sandbox, whoever made it.
    async fn destroy(&self) -> Result<bool, Failure> {
        let _changing = self.changing.lock().await;
        self.closed.store(true, Ordering::Release);
        let id = self.current().map_or_else(|| self.id.clone(), |open| open.id.clone());
        let deleted = self.place.provider().await?.delete(&id).await?;
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(deleted)
    }
}

/// A computer for an agent: files and commands, apart from everything else.
///
/// It is made when it is first used. `close()`, and the end of a `with` block, deletes it if this object made it. One that has
/// neither an id nor a thread ends with this object, at the latest with this process (mode "local").
///
/// mode: "local" (this machine, the default) or "raw" (pods of a cluster).
/// id: finds the sandbox of that id, or makes it.
/// thread, tenant: the same, by the name of a conversation.
/// labels: for a sandbox that has to be made.
/// ttl, idle_ttl: how long it may live, and be idle: seconds, a timedelta, or a text such as "2h".
/// leashed: whether it ends with this process.
/// allow_prefixes, deny_prefixes: what file operations may change.
/// deny_commands: what may not be run.
/// virtual_mode, root_dir: paths are relative to root_dir, and nothing outside can be reached by them.
/// audit_log: a function(op, target, meta), or the path of a file for lines of JSON.
/// strict_audit: what can't be recorded isn't done.
/// config: a dataclass of podbay.config, a mapping, or the path of a file like podbay.toml.
/// settings: any other setting by its name; podbay.SETTINGS lists them.
#[pyclass(frozen, subclass, weakref, module = "podbay")]
pub struct Sandbox {
    pub(crate) inner: Arc<Inner>,
}

#[pymethods]
impl Sandbox {
    #[new]
    #[pyo3(signature = (
        mode=None, *, id=None, thread=None, tenant="", labels=None, ttl=None, idle_ttl=None, leashed=None,
        allow_prefixes=None, deny_prefixes=None, deny_commands=None, virtual_mode=None, root_dir=None,
        audit_log=None, strict_audit=None, config=None, **settings
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new<'py>(
        mode: Option<String>,
        id: Option<String>,
        thread: Option<&str>,
        tenant: &str,
        labels: Option<Labels>,
        ttl: Option<Bound<'py, PyAny>>,
        idle_ttl: Option<Bound<'py, PyAny>>,
        leashed: Option<bool>,
        allow_prefixes: Option<Bound<'py, PyAny>>,
        deny_prefixes: Option<Bound<'py, PyAny>>,
        deny_commands: Option<Bound<'py, PyAny>>,
        virtual_mode: Option<Bound<'py, PyAny>>,
        root_dir: Option<Bound<'py, PyAny>>,
        audit_log: Option<Bound<'py, PyAny>>,
        strict_audit: Option<Bound<'py, PyAny>>,
        config: Option<Bound<'py, PyAny>>,
        settings: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        let mut named = place::rules(allow_prefixes, deny_prefixes, deny_commands, virtual_mode, root_dir);
        named.extend([("ttl", ttl), ("idle_ttl", idle_ttl)]);
        let place = Place::new(Arguments { mode, config, audit_log, strict_audit, named, settings })?;
        // A pod can't be tied to a process far away from it; its lifetimes end it.
        let leashed = leashed.unwrap_or(id.is_none() && thread.is_none() && place.mode() == "local");
        let labels = labels.map(|labels| labels.0).unwrap_or_default();
        let wanted = place::wanted(id, thread, tenant, labels, None, None, leashed)?;
        Ok(Self { inner: Inner::wanted(place, wanted) })
    }

    /// The sandbox's id, by which it is found again.
    #[getter]
    fn id(&self) -> String {
        self.inner.current().map_or_else(|| self.inner.id.clone(), |open| open.id.clone())
    }

    /// "local" or "raw".
    #[getter]
    fn mode(&self) -> String {
        self.inner.place.mode().to_owned()
    }

    /// Whether this object made the sandbox (True) or found it (False); None before it is first used.
    #[getter]
    fn created(&self) -> Option<bool> {
        self.inner.current().map(|open| open.created)
    }

    /// Whether it stands in for one that the same manager gave out before and that is over, with all its files.
    #[getter]
    fn replaced(&self) -> bool {
        self.inner.current().is_some_and(|open| open.replaced)
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.inner.closed.load(Ordering::Acquire)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.get();
        let state = match (this.closed(), this.created()) {
            (true, _) => "closed",
            (_, None) => "not made yet",
            (_, Some(true)) => "made here",
            (_, Some(false)) => "found",
        };
        Ok(format!("<podbay.{} {:?}, {}, {state}>", slf.get_type().name()?, this.id(), this.mode()))
    }

    /// Makes or finds the sandbox now, and returns this object.
    fn open(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let inner = slf.get().inner.clone();
        block(slf.py(), async move { inner.open().await.map(drop) })?;
        Ok(slf)
    }

    /// Makes or finds the sandbox now, and returns this object.
    fn aopen(slf: Py<Self>) -> Coroutine {
        Self::opening("aopen", slf)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, value, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (kind, value, traceback);
        self.close(py).map(drop)
    }

    fn __aenter__(slf: Py<Self>) -> Coroutine {
        Coroutine::settling("__aenter__", async { Ok(slf) }, |py, slf| slf.into_py_any(py))
    }

    #[pyo3(signature = (kind, value, traceback, /))]
    fn __aexit__(
        &self,
        kind: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> Coroutine {
        let _ = (kind, value, traceback);
        self.aclose()
    }
}

impl Sandbox {
    fn opening(name: &'static str, slf: Py<Self>) -> Coroutine {
        let inner = slf.get().inner.clone();
        let work = async move { inner.open().await.map(|_| slf) };
        Coroutine::settling(name, work, |py, slf| slf.into_py_any(py))
    }
}

twins! {
    impl Sandbox {
        /// Deletes the sandbox if this object made it, and lets go of it otherwise. Closing again does nothing.
        fn close / aclose(inner) [] -> Nothing {
            inner.close().await.map(|()| Nothing)
        }

        /// Deletes the sandbox, whoever made it; whether there was one.
        fn destroy / adestroy(inner) [] -> bool {
            inner.destroy().await
        }

        /// Asks the sandbox who it is: working directory, version, what runs in it.
        fn hello / ahello(inner) [] -> Welcome {
            Ok(inner.open().await?.sandbox.hello().await?.into())
        }
    }
}
