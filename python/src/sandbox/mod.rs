//! `podbay.Sandbox`: created on first use, deleted on close.

mod commands;
pub mod files;
mod transfers;

use podbay::{LazySandbox, Podbay};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::{Arguments, rules, wanted};
use crate::conversions::{Labels, Nothing};
use crate::coroutine::Coroutine;
use crate::failure::Failure;
use crate::results::session::{ProtectionReport, Welcome};
use crate::runtime::block_on;
use crate::sync_async::sync_and_async;

/// A computer for an agent: files and commands, isolated from everything else.
///
/// The sandbox is created on first use. `close()` and the end of a `with` block delete it if this object created it. In mode
/// "local", a sandbox with neither an id nor a thread ends with this object, or at the latest with this process.
///
/// mode: "local" (this machine, the default), "raw" (pods in a Kubernetes cluster) or "agent-sandbox" (claims there).
/// id: use the sandbox with this id, and create it if it doesn't exist.
/// thread, tenant: the same, with an id derived from a conversation.
/// labels: labels of a new sandbox.
/// ttl, idle_ttl: how long it may live, and how long it may be idle: seconds, a timedelta, or a text such as "2h".
/// leashed: whether the sandbox ends with this process.
/// attach: the sandbox has to exist: using it never creates one, and raises SandboxNotFound if there is none.
/// allow_prefixes, deny_prefixes: which paths file operations may and may not change.
/// deny_commands: commands that must not run.
/// virtual_mode, root_dir: paths are relative to root_dir and can't leave it.
/// audit_log: a function(op, target, meta), which is called in addition to writing the file in audit.file, or that file's path.
/// strict_audit: refuse operations that can't be recorded.
/// skip_cleanup: `close()` leaves the sandbox as it is; it lives until it is deleted or expires.
/// config: a dataclass of podbay.config, a mapping, or the path of a settings file.
/// settings: any other setting by its name; podbay.SETTINGS lists them.
#[pyclass(frozen, subclass, weakref, module = "podbay")]
pub struct Sandbox {
    inner: LazySandbox,
}

#[pymethods]
impl Sandbox {
    #[new]
    #[pyo3(signature = (
        mode=None, *, id=None, thread=None, tenant="", labels=None, ttl=None, idle_ttl=None, leashed=None, attach=false,
        allow_prefixes=None, deny_prefixes=None, deny_commands=None, virtual_mode=None, root_dir=None,
        audit_log=None, strict_audit=None, skip_cleanup=false, config=None, **settings
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
        attach: bool,
        allow_prefixes: Option<Bound<'py, PyAny>>,
        deny_prefixes: Option<Bound<'py, PyAny>>,
        deny_commands: Option<Bound<'py, PyAny>>,
        virtual_mode: Option<Bound<'py, PyAny>>,
        root_dir: Option<Bound<'py, PyAny>>,
        audit_log: Option<Bound<'py, PyAny>>,
        strict_audit: Option<Bound<'py, PyAny>>,
        skip_cleanup: bool,
        config: Option<Bound<'py, PyAny>>,
        settings: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        let mut named = rules(allow_prefixes, deny_prefixes, deny_commands, virtual_mode, root_dir);
        named.extend([("ttl", ttl), ("idle_ttl", idle_ttl)]);
        let podbay = Arguments { mode, config, audit_log, strict_audit, named, settings }.podbay()?;
        let unnamed = id.is_none() && thread.is_none() && !skip_cleanup;
        let leashed = leashed.unwrap_or(unnamed && podbay.can_leash());
        let labels = labels.map(|labels| labels.0).unwrap_or_default();
        let wanted = wanted(id, thread, tenant, labels, None, None, leashed)?;
        if attach && wanted.id.is_none() {
            let message = "attach needs the id or the thread of an existing sandbox: pass one of them";
            return Err(Failure::Argument(message.to_owned()).into());
        }
        let inner = podbay.lazy(wanted);
        let inner = if attach { inner.attached() } else { inner };
        Ok(Self { inner: if skip_cleanup { inner.kept() } else { inner } })
    }

    /// The sandbox's id, with which any process can find it again.
    #[getter]
    fn id(&self) -> String {
        self.inner.id()
    }

    /// "local", "raw" or "agent-sandbox".
    #[getter]
    fn mode(&self) -> String {
        self.inner.podbay().mode().to_owned()
    }

    /// Whether this object created the sandbox (True) or found it (False); None before it is first used.
    #[getter]
    fn created(&self) -> Option<bool> {
        self.inner.created()
    }

    /// Whether it replaces an earlier sandbox of the same thread that has ended, and whose files are gone.
    #[getter]
    fn replaced(&self) -> bool {
        self.inner.replaced()
    }

    /// How the sandbox was started: "warm" (from a pool) or "cold"; None before it is first used, or if that isn't known.
    #[getter]
    fn launch(&self) -> Option<&'static str> {
        self.inner.launch().map(podbay::provider::Launch::as_str)
    }

    /// Whether this object is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.inner.closed()
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.get();
        let state = match (this.closed(), this.created()) {
            (true, _) => "closed",
            (_, None) => "not created yet",
            (_, Some(true)) => "created",
            (_, Some(false)) => "found",
        };
        Ok(format!("<podbay.{} {:?}, {}, {state}>", slf.get_type().name()?, this.id(), this.mode()))
    }

    /// Creates or finds the sandbox now, and returns this object.
    fn open(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let inner = slf.get().inner.clone();
        block_on(slf.py(), async move {
            inner.open().await?;
            Ok(())
        })?;
        Ok(slf)
    }

    /// Creates or finds the sandbox now, and returns this object.
    fn aopen(slf: Py<Self>) -> Coroutine {
        let inner = slf.get().inner.clone();
        let work = async move {
            inner.open().await?;
            Ok(slf)
        };
        Coroutine::converting("aopen", work, |py, slf| slf.into_py_any(py))
    }

    /// Drops the connection, and neither deletes nor closes anything: the next use finds the sandbox again, or creates it anew
    /// if it has ended.
    fn disconnect(&self, py: Python<'_>) {
        py.detach(|| self.inner.disconnect());
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
        Coroutine::converting("__aenter__", async { Ok(slf) }, |py, slf| slf.into_py_any(py))
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
    /// Wraps a sandbox that exists.
    pub fn of(podbay: &Podbay, sandbox: podbay::Sandbox) -> Self {
        Self { inner: LazySandbox::of(podbay, sandbox) }
    }
}

sync_and_async! {
    impl Sandbox {
        /// Deletes the sandbox if this object created it, and only disconnects otherwise. Closing again does nothing.
        fn close / aclose(inner) [] -> Nothing {
            inner.close().await?;
            Ok(Nothing)
        }

        /// Deletes the sandbox, whoever created it. Returns whether there was one.
        fn destroy / adestroy(inner) [] -> bool {
            Ok(inner.destroy().await?)
        }

        /// Ends the sandbox's processes and deletes its pod; only files on persistent volumes are kept. The next use resumes
        /// it, unless `agent_sandbox.resume` is false. Only mode "agent-sandbox" has this.
        fn suspend / asuspend(inner) [] -> Nothing {
            inner.suspend().await?;
            Ok(Nothing)
        }

        /// Resumes the sandbox after `suspend()`, and returns when it is ready.
        fn resume / aresume(inner) [] -> Nothing {
            inner.resume().await?;
            Ok(Nothing)
        }

        /// Returns the sandbox's working directory, podbayd version and activity.
        fn hello / ahello(inner) [] -> Welcome {
            Ok(inner.open().await?.hello().await?.into())
        }

        /// Returns how commands in the sandbox are kept from interfering with podbayd.
        fn protections / aprotections(inner) [] -> ProtectionReport {
            Ok(inner.open().await?.protection().await?.into())
        }
    }
}
