//! From a conversation to its sandbox.

use std::sync::Arc;

use podbay::Podbay;
use podbay::provider::Wanted;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Failure;
use crate::place::{self, Arguments};
use crate::provider::{Provider, query};
use crate::results::providers::Page;
use crate::sandbox::{Inner, Sandbox};
use crate::text::{Labels, Lifetime};
use crate::twins::twins;

/// The id of a thread's sandbox, whether there is one or not.
#[pyfunction]
pub fn sandbox_id(tenant: &str, thread: &str) -> String {
    podbay::thread::sandbox_id(tenant, thread)
}

/// What a manager's object and its coroutines share.
pub struct Desk {
    podbay: Podbay,
    wanted: Wanted,
}

/// Gives each thread of each tenant its own sandbox. Nothing that it remembers decides anything, so any number of processes may
/// serve any thread.
///
/// provider: whose sandboxes; without one, the other arguments are those of `Provider`.
/// labels, ttl, idle_ttl: for sandboxes that have to be made.
#[pyclass(frozen, subclass, module = "podbay")]
pub struct Manager {
    inner: Arc<Desk>,
}

#[pymethods]
impl Manager {
    #[new]
    #[pyo3(signature = (
        provider=None, *, labels=None, ttl=None, idle_ttl=None, mode=None, allow_prefixes=None, deny_prefixes=None,
        deny_commands=None, virtual_mode=None, root_dir=None, audit_log=None, strict_audit=None, config=None, **settings
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new<'py>(
        provider: Option<&Bound<'py, Provider>>,
        labels: Option<Labels>,
        ttl: Option<Lifetime>,
        idle_ttl: Option<Lifetime>,
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
        let podbay = match provider {
            None => place::podbay(Arguments { mode, config, audit_log, strict_audit, named, settings })?,
            Some(provider) => {
                let more = settings.is_some_and(|settings| !settings.is_empty());
                let given = named.iter().any(|(_, value)| value.is_some());
                if more || given || mode.is_some() || config.is_some() || audit_log.is_some() || strict_audit.is_some()
                {
                    let message = "a provider has settings already: pass them there, or leave the provider out";
                    return Err(Failure::Argument(message.to_owned()).into());
                }
                provider.get().inner.clone()
            }
        };
        let labels = labels.map(|labels| labels.0).unwrap_or_default();
        let wanted = Wanted { labels, ttl: Lifetime::of(ttl), idle_ttl: Lifetime::of(idle_ttl), ..Wanted::default() };
        Ok(Self { inner: Arc::new(Desk { podbay, wanted }) })
    }

    /// The provider.
    #[getter]
    fn provider(&self) -> Provider {
        Provider { inner: self.inner.podbay.clone() }
    }

    /// The id of a thread's sandbox, whether there is one or not.
    #[staticmethod]
    fn id(tenant: &str, thread: &str) -> String {
        podbay::thread::sandbox_id(tenant, thread)
    }

    fn __repr__(&self) -> String {
        format!("<podbay.Manager {}>", self.inner.podbay.mode())
    }
}

twins! {
    impl Manager {
        /// Finds a thread's sandbox, or makes it.
        fn acquire / aacquire(desk, thread: String, tenant: Option<String>) [thread, tenant=None] -> Sandbox {
            let tenant = tenant.as_deref().unwrap_or_default();
            let sandbox = desk.podbay.thread_with(tenant, &thread, desk.wanted.clone()).await?;
            Ok(Sandbox { inner: Inner::of(&desk.podbay, sandbox) })
        }

        /// Deletes a thread's sandbox; whether there was one.
        fn release / arelease(desk, thread: String, tenant: Option<String>) [thread, tenant=None] -> bool {
            let id = podbay::thread::sandbox_id(tenant.as_deref().unwrap_or_default(), &thread);
            Ok(desk.podbay.delete(&id).await?)
        }

        /// Lists a tenant's sandboxes.
        fn list / alist(desk, tenant: Option<String>, limit: Option<usize>, cursor: Option<String>)
        [tenant=None, *, limit=None, cursor=None] -> Page {
            let labels = Labels(podbay::thread::labels(tenant.as_deref().unwrap_or_default(), None));
            let query = query(Some(labels), None, limit, cursor)?;
            Ok(desk.podbay.list(&query).await?.into())
        }
    }
}
