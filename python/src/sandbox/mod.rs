//! One sandbox: made when it is first used, deleted when it is closed.

mod commands;
mod files;
mod transfers;

use std::sync::Arc;

use podbay::provider::Wanted;
use podbay::{LazySandbox, Podbay};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::coroutine::Coroutine;
use crate::failure::Failure;
use crate::place::{self, Arguments};
use crate::results::providers::Welcome;
use crate::runtime::block;
use crate::text::{Labels, Nothing};
use crate::twins::twins;

/// A sandbox that is there.
pub struct Open {
    /// It, with its rules and audit.
    pub guarded: podbay::Sandbox,
}

/// What a sandbox's Python object, its commands and its coroutines share.
pub struct Inner {
    lazy: LazySandbox,
}

impl Inner {
    /// One that is to be created when it is needed.
    pub fn wanted(podbay: &Podbay, wanted: Wanted) -> Arc<Self> {
        Arc::new(Self { lazy: podbay.lazy(wanted) })
    }

    /// One that is there already.
    pub fn of(podbay: &Podbay, sandbox: podbay::Sandbox) -> Arc<Self> {
        Arc::new(Self { lazy: LazySandbox::of(podbay, sandbox) })
    }

    /// The sandbox, which is created now if it wasn't before.
    pub async fn open(&self) -> Result<Arc<Open>, Failure> {
        Ok(Arc::new(Open { guarded: self.lazy.open().await? }))
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
        let podbay = place::podbay(Arguments { mode, config, audit_log, strict_audit, named, settings })?;
        // A pod can't be tied to a process far away from it; its lifetimes end it.
        let leashed = leashed.unwrap_or(id.is_none() && thread.is_none() && podbay.mode() == "local");
        let labels = labels.map(|labels| labels.0).unwrap_or_default();
        let wanted = place::wanted(id, thread, tenant, labels, None, None, leashed)?;
        Ok(Self { inner: Inner::wanted(&podbay, wanted) })
    }

    /// The sandbox's id, by which it is found again.
    #[getter]
    fn id(&self) -> String {
        self.inner.lazy.id()
    }

    /// "local" or "raw".
    #[getter]
    fn mode(&self) -> String {
        self.inner.lazy.podbay().mode().to_owned()
    }

    /// Whether this object made the sandbox (True) or found it (False); None before it is first used.
    #[getter]
    fn created(&self) -> Option<bool> {
        self.inner.lazy.created()
    }

    /// Whether it stands in for one that the same manager gave out before and that is over, with all its files.
    #[getter]
    fn replaced(&self) -> bool {
        self.inner.lazy.replaced()
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.inner.lazy.closed()
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
            Ok(inner.lazy.close().await.map(|()| Nothing)?)
        }

        /// Deletes the sandbox, whoever made it; whether there was one.
        fn destroy / adestroy(inner) [] -> bool {
            Ok(inner.lazy.destroy().await?)
        }

        /// Asks the sandbox who it is: working directory, version, what runs in it.
        fn hello / ahello(inner) [] -> Welcome {
            Ok(inner.open().await?.guarded.hello().await?.into())
        }
    }
}
