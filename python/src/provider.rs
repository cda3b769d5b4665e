//! Providers: they find, make, list and delete sandboxes.

use std::time::Duration;

use podbay::Podbay;
use podbay::provider::{Phase, Query};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::coroutine::Coroutine;
use crate::failure::Failure;
use crate::place::{self, Arguments};
use crate::results::providers::{Cleaned, Page, PoolStatus, Stats};
use crate::runtime::block;
use crate::sandbox::{Inner, Sandbox};
use crate::text::{Labels, Lifetime};
use crate::twins::twins;

/// A sandbox that wasn't used for so long counts as idle, unless someone says otherwise.
const IDLE: Duration = Duration::from_secs(300);

/// Finds, makes, lists and deletes sandboxes. State lives where the sandboxes live, so any number of processes may use the same
/// ones at once.
///
/// The arguments are those of `Sandbox`; rules and audit hold for every sandbox that comes from here.
#[pyclass(frozen, subclass, module = "podbay")]
pub struct Provider {
    pub(crate) inner: Podbay,
}

/// Which sandboxes a list shall have.
pub fn query(
    labels: Option<Labels>,
    status: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
) -> Result<Query, Failure> {
    let phases = [Phase::Pending, Phase::Warm, Phase::Running, Phase::Terminated];
    let phase = match status {
        None => None,
        Some(status) => Some(phases.into_iter().find(|phase| phase.as_str() == status).ok_or_else(|| {
            Failure::Argument(format!("{status:?} isn't a status: pending, warm, running or terminated"))
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
        let named = place::rules(allow_prefixes, deny_prefixes, deny_commands, virtual_mode, root_dir);
        Ok(Self { inner: place::podbay(Arguments { mode, config, audit_log, strict_audit, named, settings })? })
    }

    /// "local" or "raw".
    #[getter]
    fn mode(&self) -> String {
        self.inner.mode().to_owned()
    }

    fn __repr__(&self) -> String {
        format!("<podbay.Provider {}>", self.inner.mode())
    }

    /// Finds the sandbox of an id or a thread, or makes it; without either makes a new one. Two callers that want the same get the
    /// same. It stays until it is deleted or its time is over, unless it is leashed to this process.
    #[pyo3(signature = (id=None, *, thread=None, tenant="", labels=None, ttl=None, idle_ttl=None, leashed=false))]
    #[allow(clippy::too_many_arguments)]
    fn get_or_create(
        &self,
        py: Python<'_>,
        id: Option<String>,
        thread: Option<&str>,
        tenant: &str,
        labels: Option<Labels>,
        ttl: Option<Lifetime>,
        idle_ttl: Option<Lifetime>,
        leashed: bool,
    ) -> PyResult<Sandbox> {
        let labels = labels.map(|labels| labels.0).unwrap_or_default();
        let wanted = place::wanted(id, thread, tenant, labels, Lifetime::of(ttl), Lifetime::of(idle_ttl), leashed)?;
        let place = self.inner.clone();
        block(py, async move {
            let sandbox = place.get_or_create(wanted).await?;
            Ok(Sandbox { inner: Inner::of(&place, sandbox) })
        })
    }

    /// Finds the sandbox of an id or a thread, or makes it; without either makes a new one. Two callers that want the same get the
    /// same. It stays until it is deleted or its time is over, unless it is leashed to this process.
    #[pyo3(signature = (id=None, *, thread=None, tenant="", labels=None, ttl=None, idle_ttl=None, leashed=false))]
    #[allow(clippy::too_many_arguments)]
    fn aget_or_create(
        &self,
        id: Option<String>,
        thread: Option<&str>,
        tenant: &str,
        labels: Option<Labels>,
        ttl: Option<Lifetime>,
        idle_ttl: Option<Lifetime>,
        leashed: bool,
    ) -> PyResult<Coroutine> {
        let labels = labels.map(|labels| labels.0).unwrap_or_default();
        let wanted = place::wanted(id, thread, tenant, labels, Lifetime::of(ttl), Lifetime::of(idle_ttl), leashed)?;
        let place = self.inner.clone();
        let work = async move {
            let sandbox = place.get_or_create(wanted).await?;
            Ok(Inner::of(&place, sandbox))
        };
        Ok(Coroutine::settling("aget_or_create", work, |py, inner| Sandbox { inner }.into_py_any(py)))
    }
}

twins! {
    impl Provider {
        /// Finds a sandbox that must exist.
        fn reconnect / areconnect(place, id: String) [id] -> Sandbox {
            let sandbox = place.reconnect(&id).await?;
            Ok(Sandbox { inner: Inner::of(&place, sandbox) })
        }

        /// Lists one page of sandboxes, sorted by id: those with all of the labels and in that status.
        fn list / alist(
            place, labels: Option<Labels>, status: Option<String>, limit: Option<usize>, cursor: Option<String>,
        ) [*, labels=None, status=None, limit=None, cursor=None] -> Page {
            let query = query(labels, status, limit, cursor)?;
            Ok(place.list(&query).await?.into())
        }

        /// Deletes a sandbox and all that belongs to it; whether there was one.
        fn delete / adelete(place, id: String) [id] -> bool {
            Ok(place.delete(&id).await?)
        }

        /// Deletes what is over, and what was idle for longer than max_idle.
        fn cleanup / acleanup(place, max_idle: Option<Lifetime>) [max_idle=None] -> Cleaned {
            Ok(place.cleanup(Lifetime::of(max_idle)).await?.into())
        }

        /// Counts sandboxes; one that wasn't used for `idle` counts as idle, five minutes unless given.
        fn stats / astats(place, idle: Option<Lifetime>) [idle=None] -> Stats {
            Ok(place.stats(Lifetime::of(idle).unwrap_or(IDLE)).await?.into())
        }

        /// How full the pool is: all zero where there is none.
        fn pool_status / apool_status(place) [] -> PoolStatus {
            Ok(place.pool_status().await?.into())
        }

        /// Fills the pool once, and returns when it is full.
        fn refill / arefill(place) [] -> PoolStatus {
            Ok(place.refill().await?.into())
        }
    }
}
