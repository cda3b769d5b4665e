//! Where sandboxes come from: settings, and the provider that they name.

use std::collections::BTreeMap;
use std::time::Duration;

use podbay::Podbay;
use podbay::provider::Wanted;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::failure::Failure;
use crate::{audit, settings};

/// Settings that have an argument of their own: the setting's key, and what was given.
pub type Named<'py> = Vec<(&'static str, Option<Bound<'py, PyAny>>)>;

/// The rules, which sandboxes, providers and managers all take.
pub fn rules<'py>(
    allow_prefixes: Option<Bound<'py, PyAny>>,
    deny_prefixes: Option<Bound<'py, PyAny>>,
    deny_commands: Option<Bound<'py, PyAny>>,
    virtual_mode: Option<Bound<'py, PyAny>>,
    root_dir: Option<Bound<'py, PyAny>>,
) -> Named<'py> {
    vec![
        ("policy.allow_prefixes", allow_prefixes),
        ("policy.deny_prefixes", deny_prefixes),
        ("policy.deny_commands", deny_commands),
        ("policy.virtual_mode", virtual_mode),
        ("policy.root", root_dir),
    ]
}

/// What every object that has sandboxes is made with.
pub struct Arguments<'py> {
    pub mode: Option<String>,
    pub config: Option<Bound<'py, PyAny>>,
    pub audit_log: Option<Bound<'py, PyAny>>,
    pub strict_audit: Option<Bound<'py, PyAny>>,
    pub named: Named<'py>,
    pub settings: Option<Bound<'py, PyDict>>,
}

/// The object that the arguments describe. Nothing is opened yet.
pub fn podbay(arguments: Arguments<'_>) -> Result<Podbay, Failure> {
    let (callback, file) = audit::split(arguments.audit_log);
    let mut named = arguments.named;
    let strict = arguments.strict_audit.as_ref().map(|strict| strict.is_truthy()).transpose()?.unwrap_or(false);
    named.push(("audit.file", file));
    named.push(("audit.strict", arguments.strict_audit));
    let config =
        settings::gather(arguments.mode.as_deref(), arguments.config.as_ref(), &named, arguments.settings.as_ref())?;
    let builder = Podbay::builder();
    let builder = match callback {
        Some(callback) => builder.audit(audit::audit(callback, strict)),
        None => builder,
    };
    Ok(builder.config(config).build()?)
}

/// Which sandbox is wanted: the one of an id, of a thread, or a new one.
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
        (Some(_), Some(_)) => Err(Failure::Argument("id and thread both name a sandbox: pass one of them".to_owned())),
        (None, Some(thread)) => Ok(podbay::thread::wanted(tenant, thread, wanted)),
        (id, None) => Ok(Wanted { id, ..wanted }),
    }
}
