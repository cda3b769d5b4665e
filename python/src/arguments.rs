//! Constructor arguments of sandboxes, providers and managers.

use std::collections::BTreeMap;
use std::time::Duration;

use podbay::Podbay;
use podbay::provider::Wanted;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Failure;
use crate::{audit, settings};

/// Settings that are arguments: the setting's key, and the value if it was passed.
pub type NamedSettings<'py> = Vec<(&'static str, Option<Bound<'py, PyAny>>)>;

/// The rules, which sandboxes, providers and managers all take.
pub fn rules<'py>(
    allow_prefixes: Option<Bound<'py, PyAny>>,
    deny_prefixes: Option<Bound<'py, PyAny>>,
    deny_commands: Option<Bound<'py, PyAny>>,
    virtual_mode: Option<Bound<'py, PyAny>>,
    root_dir: Option<Bound<'py, PyAny>>,
) -> NamedSettings<'py> {
    vec![
        ("policy.allow_prefixes", allow_prefixes),
        ("policy.deny_prefixes", deny_prefixes),
        ("policy.deny_commands", deny_commands),
        ("policy.virtual_mode", virtual_mode),
        ("policy.root", root_dir),
    ]
}

/// The arguments that all constructors share.
pub struct Arguments<'py> {
    pub mode: Option<String>,
    pub config: Option<Bound<'py, PyAny>>,
    pub audit_log: Option<Bound<'py, PyAny>>,
    pub strict_audit: Option<Bound<'py, PyAny>>,
    pub named: NamedSettings<'py>,
    pub settings: Option<Bound<'py, PyDict>>,
}

impl Arguments<'_> {
    /// Whether nothing was passed.
    pub fn is_empty(&self) -> bool {
        let Self { mode, config, audit_log, strict_audit, named, settings } = self;
        mode.is_none()
            && config.is_none()
            && audit_log.is_none()
            && strict_audit.is_none()
            && named.iter().all(|(_, value)| value.is_none())
            && settings.as_ref().is_none_or(|settings| settings.is_empty())
    }

    /// Reads the settings. Nothing is opened yet.
    pub fn podbay(mut self) -> Result<Podbay, Failure> {
        let (callback, file) = audit::split(self.audit_log);
        self.named.push(("audit.file", file));
        self.named.push(("audit.strict", self.strict_audit));
        let config = settings::gather(self.mode.as_deref(), self.config.as_ref(), &self.named, self.settings.as_ref())?;
        let strict = config.is_audit_strict();
        let builder = Podbay::builder().config(config).on_audit_failure(audit::warn);
        let builder = match callback {
            Some(callback) => builder.audit(audit::audit(callback, strict)),
            None => builder,
        };
        Ok(builder.build()?)
    }
}

/// Describes the wanted sandbox: the one with an id or of a thread, or a new one.
pub fn wanted(
    id: Option<String>,
    thread: Option<&str>,
    tenant: &str,
    labels: BTreeMap<String, String>,
    ttl: Option<Duration>,
    idle_ttl: Option<Duration>,
    leashed: bool,
) -> Result<Wanted, Failure> {
    let wanted = Wanted { id: None, labels, ttl, idle_ttl, leashed };
    match (id, thread) {
        (Some(_), Some(_)) => Err(Failure::Argument("id and thread both name a sandbox: pass only one".to_owned())),
        (None, Some(thread)) => Ok(podbay::thread::wanted(tenant, thread, wanted)),
        (id, None) => Ok(Wanted { id, ..wanted }),
    }
}
