//! `podbay.Provider`: finds, creates, lists and deletes sandboxes.

use std::time::Duration;

use podbay::Podbay;
use podbay::provider::{Phase, Query};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::{Arguments, rules, wanted};
use crate::conversions::{Labels, Nothing, Ttl};
use crate::coroutine::Coroutine;
use crate::failure::Failure;
use crate::results::providers::{Cleaned, Page, PoolStatus, Stats};
use crate::runtime::block_on;
use crate::sandbox::Sandbox;
use crate::sync_async::sync_and_async;

/// How long a sandbox must be unused to count as idle by default.
const IDLE: Duration = Duration::from_secs(300);

/// Finds, creates, lists and deletes sandboxes. All state lives with the sandboxes, so any number of processes can share them.
///
/// The arguments are those of `Sandbox`. Rules and audit apply to every sandbox that this provider returns.
#[pyclass(frozen, subclass, module = "podbay")]
pub struct Provider {
    pub(crate) inner: Podbay,
}

/// Builds the query for a list.
pub fn query(
    labels: Option<Labels>,
    status: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
) -> Result<Query, Failure> {
    let phase = match status {
        None => None,
        Some(status) => Some(Phase::ALL.into_iter().find(|phase| phase.as_str() == status).ok_or_else(|| {
            Failure::Argument(format!("unknown status {status:?}: use pending, warm, running, suspended or terminated"))
        })?),
    };
    Ok(Query { labels: labels.map(|labels| labels.0).unwrap_or_default(), phase, limit, cursor })
}

#[pymethods]
impl Provider {
    #[new]
    #[pyo3(signature = (
        mode=None, *, allow_prefixes=None, deny_prefixes=None, deny_commands=None, virtual_mode=None, root_dir=None,
        audit_log=None, strict_audit=None, config=None, **settings
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new<'py>(
        mode: Option<String>,
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
        let named = rules(allow_prefixes, deny_prefixes, deny_commands, virtual_mode, root_dir);
        Ok(Self { inner: Arguments { mode, config, audit_log, strict_audit, named, settings }.podbay()? })
    }

    /// "local", "raw" or "agent-sandbox".
    #[getter]
    fn mode(&self) -> String {
        self.inner.mode().to_owned()
    }

    fn __repr__(&self) -> String {
        format!("<podbay.Provider {}>", self.inner.mode())
    }

    /// Returns the sandbox with an id or of a thread, and creates it if it doesn't exist; without either, creates a new one.
    /// Concurrent callers get the same sandbox. It lives until it is deleted or expires, unless it is leashed to this process.
    #[pyo3(signature = (id=None, *, thread=None, tenant="", labels=None, ttl=None, idle_ttl=None, leashed=false))]
    #[allow(clippy::too_many_arguments)]
    fn get_or_create(
        &self,
        py: Python<'_>,
        id: Option<String>,
        thread: Option<&str>,
        tenant: &str,
        labels: Option<Labels>,
        ttl: Option<Ttl>,
        idle_ttl: Option<Ttl>,
        leashed: bool,
    ) -> PyResult<Sandbox> {
        let labels = labels.map(|labels| labels.0).unwrap_or_default();
        let wanted = wanted(id, thread, tenant, labels, Ttl::of(ttl), Ttl::of(idle_ttl), leashed)?;
        let podbay = self.inner.clone();
        block_on(py, async move {
            let sandbox = podbay.get_or_create(wanted).await?;
            Ok(Sandbox::of(&podbay, sandbox))
        })
    }

    /// Returns the sandbox with an id or of a thread, and creates it if it doesn't exist; without either, creates a new one.
    /// Concurrent callers get the same sandbox. It lives until it is deleted or expires, unless it is leashed to this process.
    #[pyo3(signature = (id=None, *, thread=None, tenant="", labels=None, ttl=None, idle_ttl=None, leashed=false))]
    #[allow(clippy::too_many_arguments)]
    fn aget_or_create(
        &self,
        id: Option<String>,
        thread: Option<&str>,
        tenant: &str,
        labels: Option<Labels>,
        ttl: Option<Ttl>,
        idle_ttl: Option<Ttl>,
        leashed: bool,
    ) -> PyResult<Coroutine> {
        let labels = labels.map(|labels| labels.0).unwrap_or_default();
        let wanted = wanted(id, thread, tenant, labels, Ttl::of(ttl), Ttl::of(idle_ttl), leashed)?;
        let podbay = self.inner.clone();
        let work = async move {
            let sandbox = podbay.get_or_create(wanted).await?;
            Ok(Sandbox::of(&podbay, sandbox))
        };
        Ok(Coroutine::new("aget_or_create", work))
    }
}

sync_and_async! {
    impl Provider {
        /// Returns an existing sandbox, or raises SandboxNotFound.
        fn reconnect / areconnect(podbay, id: String) [id] -> Sandbox {
            let sandbox = podbay.reconnect(&id).await?;
            Ok(Sandbox::of(&podbay, sandbox))
        }

        /// Lists one page of sandboxes, sorted by id, optionally only those with all of the labels and with a status.
        fn list / alist(
            podbay, labels: Option<Labels>, status: Option<String>, limit: Option<usize>, cursor: Option<String>,
        ) [*, labels=None, status=None, limit=None, cursor=None] -> Page {
            let query = query(labels, status, limit, cursor)?;
            Ok(podbay.list(&query).await?.into())
        }

        /// Deletes a sandbox and everything that belongs to it. Returns whether there was one.
        fn delete / adelete(podbay, id: String) [id] -> bool {
            Ok(podbay.delete(&id).await?)
        }

        /// Ends a sandbox's processes and deletes its pod; only files on persistent volumes are kept. Only mode
        /// "agent-sandbox" has this.
        fn suspend / asuspend(podbay, id: String) [id] -> Nothing {
            podbay.suspend(&id).await?;
            Ok(Nothing)
        }

        /// Resumes a suspended sandbox, and returns when it is ready.
        fn resume / aresume(podbay, id: String) [id] -> Nothing {
            podbay.resume(&id).await?;
            Ok(Nothing)
        }

        /// Deletes sandboxes that have expired, and those that have been idle for longer than max_idle.
        fn cleanup / acleanup(podbay, max_idle: Option<Ttl>) [max_idle=None] -> Cleaned {
            Ok(podbay.cleanup(Ttl::of(max_idle)).await?.into())
        }

        /// Counts sandboxes. Those that haven't been used for `idle` (default 5 minutes) count as idle.
        fn stats / astats(podbay, idle: Option<Ttl>) [idle=None] -> Stats {
            Ok(podbay.stats(Ttl::of(idle).unwrap_or(IDLE)).await?.into())
        }

        /// Returns how full the warm pool is; all zeros if there is none.
        fn pool_status / apool_status(podbay) [] -> PoolStatus {
            Ok(podbay.pool_status().await?.into())
        }

        /// Fills the warm pool once, and returns when it is full.
        fn refill / arefill(podbay) [] -> PoolStatus {
            Ok(podbay.refill().await?.into())
        }
    }
}
