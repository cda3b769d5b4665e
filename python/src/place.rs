//! Where sandboxes come from: settings, and the provider that they name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use podbay::audit::Audit;
use podbay::config::Config;
use podbay::policy::Policy;
use podbay::provider::{Provided, Provider, Wanted};
use podbay::{Guarded, Manager};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::sync::OnceCell;

use crate::failure::Failure;
use crate::{audit, settings};

/// Settings, and the provider that they name once it is needed.
pub struct Place {
    config: Config,
    policy: Policy,
    audit: Audit,
    provider: OnceCell<Arc<dyn Provider>>,
}

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

impl Place {
    /// The place that the arguments describe. Nothing is opened yet.
    pub fn new(arguments: Arguments<'_>) -> Result<Arc<Self>, Failure> {
        let (callback, file) = audit::split(arguments.audit_log);
        let mut named = arguments.named;
        let strict = arguments.strict_audit.as_ref().map(|strict| strict.is_truthy()).transpose()?.unwrap_or(false);
        named.push(("audit.file", file));
        named.push(("audit.strict", arguments.strict_audit));
        let config = settings::gather(
            arguments.mode.as_deref(),
            arguments.config.as_ref(),
            &named,
            arguments.settings.as_ref(),
        )?;
        let audit = audit::audit(callback, strict, &config)?;
        Ok(Arc::new(Self { policy: config.policy(), audit, config, provider: OnceCell::new() }))
    }

    /// The provider's name.
    pub fn mode(&self) -> &str {
        self.config.mode()
    }

    /// The provider.
    pub async fn provider(&self) -> Result<&Arc<dyn Provider>, Failure> {
        Ok(self.provider.get_or_try_init(|| self.config.provider()).await?)
    }

    /// A sandbox behind this place's rules and record.
    pub fn guard(&self, provided: &Provided) -> Guarded {
        Guarded::new(provided.sandbox.clone(), provided.id.clone(), self.policy.clone(), self.audit.clone())
    }
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
    let mut labels = labels;
    let id = match (id, thread) {
        (Some(_), Some(_)) => {
            return Err(Failure::Argument("id and thread both name a sandbox: pass one of them".to_owned()));
        }
        (None, Some(thread)) => {
            labels.extend(podbay::manager::labels_of(tenant, Some(thread)));
            Some(Manager::id(tenant, thread))
        }
        (id, None) => id,
    };
    Ok(Wanted { id, labels, ttl, idle_ttl, leashed })
}
