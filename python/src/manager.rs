//! `podbay.Manager`: a sandbox for each conversation.

use podbay::Podbay;
use podbay::provider::Wanted;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arguments::{Arguments, rules};
use crate::conversions::{Labels, Ttl};
use crate::failure::Failure;
use crate::provider::{Provider, query};
use crate::results::providers::Page;
use crate::sandbox::Sandbox;
use crate::sync_async::sync_and_async;

/// Returns the id of a thread's sandbox, whether or not it exists.
#[pyfunction]
pub fn sandbox_id(tenant: &str, thread: &str) -> String {
    podbay::thread::sandbox_id(tenant, thread)
}

/// Where a manager's sandboxes come from, and what new ones are like.
#[derive(Clone)]
pub struct ThreadSandboxes {
    podbay: Podbay,
    wanted: Wanted,
    /// The label that has the thread's own name.
    thread_label: Option<String>,
}

impl ThreadSandboxes {
    /// What a new sandbox of a thread is like.
    fn wanted_for(&self, thread: &str) -> Wanted {
        let mut wanted = self.wanted.clone();
        if let Some(label) = &self.thread_label {
            wanted.labels.insert(label.clone(), thread.to_owned());
        }
        wanted
    }
}

/// Gives each thread of each tenant its own sandbox. A sandbox's id is derived from tenant and thread and a manager keeps no
/// state of its own, so any number of processes can serve any thread.
///
/// provider: the provider to use; without one, the other arguments are those of `Provider`.
/// labels, ttl, idle_ttl: for new sandboxes.
/// thread_label: a label of new sandboxes that has the thread's name. Whoever can list sandboxes sees it.
#[pyclass(frozen, subclass, module = "podbay")]
pub struct Manager {
    inner: ThreadSandboxes,
}

#[pymethods]
impl Manager {
    #[new]
    #[pyo3(signature = (
        provider=None, *, labels=None, ttl=None, idle_ttl=None, thread_label=None, mode=None, allow_prefixes=None, deny_prefixes=None,
        deny_commands=None, virtual_mode=None, root_dir=None, audit_log=None, strict_audit=None, config=None, **settings
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new<'py>(
        provider: Option<&Bound<'py, Provider>>,
        labels: Option<Labels>,
        ttl: Option<Ttl>,
        idle_ttl: Option<Ttl>,
        thread_label: Option<String>,
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
        let arguments = Arguments { mode, config, audit_log, strict_audit, named, settings };
        let podbay = match provider {
            None => arguments.podbay()?,
            Some(provider) if arguments.is_empty() => provider.get().inner.clone(),
            Some(_) => {
                let message =
                    "the provider already has its settings: pass them to the provider, or leave the provider out";
                return Err(Failure::Argument(message.to_owned()).into());
            }
        };
        let labels = labels.map(|labels| labels.0).unwrap_or_default();
        let wanted = Wanted { labels, ttl: Ttl::of(ttl), idle_ttl: Ttl::of(idle_ttl), ..Wanted::default() };
        Ok(Self { inner: ThreadSandboxes { podbay, wanted, thread_label } })
    }

    /// The provider.
    #[getter]
    fn provider(&self) -> Provider {
        Provider { inner: self.inner.podbay.clone() }
    }

    /// Returns the id of a thread's sandbox, whether or not it exists.
    #[staticmethod]
    fn id(tenant: &str, thread: &str) -> String {
        podbay::thread::sandbox_id(tenant, thread)
    }

    fn __repr__(&self) -> String {
        format!("<podbay.Manager {}>", self.inner.podbay.mode())
    }
}

sync_and_async! {
    impl Manager {
        /// Returns a thread's sandbox, and creates it if it doesn't exist.
        fn acquire / aacquire(threads, thread: String, tenant: Option<String>) [thread, tenant=None] -> Sandbox {
            let tenant = tenant.as_deref().unwrap_or_default();
            let sandbox = threads.podbay.thread_with(tenant, &thread, threads.wanted_for(&thread)).await?;
            Ok(Sandbox::of(&threads.podbay, sandbox))
        }

        /// Deletes a thread's sandbox. Returns whether there was one.
        fn release / arelease(threads, thread: String, tenant: Option<String>) [thread, tenant=None] -> bool {
            Ok(threads.podbay.release(tenant.as_deref().unwrap_or_default(), &thread).await?)
        }

        /// Lists a tenant's sandboxes.
        fn list / alist(threads, tenant: Option<String>, limit: Option<usize>, cursor: Option<String>)
        [tenant=None, *, limit=None, cursor=None] -> Page {
            let labels = Labels(podbay::thread::labels(tenant.as_deref().unwrap_or_default(), None));
            let query = query(Some(labels), None, limit, cursor)?;
            Ok(threads.podbay.list(&query).await?.into())
        }
    }
}
