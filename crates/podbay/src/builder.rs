//! A `Podbay` that code puts together.

use std::sync::Arc;

use podbay_client::Result;
use podbay_client::provider::Provider;

use crate::audit::{Alarm, Audit};
use crate::config::{Config, ConfigError};
use crate::podbay::Podbay;
use crate::policy::Policy;

/// Puts a [`Podbay`] together: settings, rules, audit, provider.
///
/// ```no_run
/// # fn example() -> podbay::Result<()> {
/// use podbay::Podbay;
///
/// let podbay = Podbay::builder().set("local.memory", "512MiB").set("policy.deny_commands", "rm -rf").build()?;
/// # Ok(()) }
/// ```
#[derive(Default)]
pub struct Builder {
    config: Config,
    policy: Option<Policy>,
    audit: Audit,
    alarm: Option<Alarm>,
    provider: Option<Arc<dyn Provider>>,
    failed: Option<ConfigError>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("mode", &self.config.mode()).finish_non_exhaustive()
    }
}

impl Builder {
    /// Uses these settings in place of those set so far.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets a setting by its key; `podbay config --all` lists them. [`build`](Self::build) reports one that is unknown or invalid.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        if let Err(error) = self.config.set(key, value) {
            self.failed.get_or_insert(error);
        }
        self
    }

    /// Uses these rules in place of those in the settings.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Tells this audit too, beside the log in the settings. It is strict if `audit.strict` is set.
    #[must_use]
    pub fn audit(mut self, audit: Audit) -> Self {
        self.audit = self.audit.and(audit);
        self
    }

    /// Calls this, with a message for people, when operations begin to go unrecorded although somebody wants them recorded. Where
    /// the audit is strict they are refused, and nobody has to be told.
    #[must_use]
    pub fn on_audit_failure(mut self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.alarm = Some(Arc::new(tell));
        self
    }

    /// Uses this provider in place of the one in the settings.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.provider = Some(provider);
        self
    }

    /// Builds the `Podbay`. Nothing is created or connected yet.
    ///
    /// # Errors
    /// When a setting is unknown or invalid, the audit log can't be opened, or `audit.strict` is set and there is none.
    pub fn build(self) -> Result<Podbay> {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let audit = self.config.audit()?.and(self.audit).with_alarm(self.alarm);
        self.config.check_recorded(&audit)?;
        let policy = self.policy.unwrap_or_else(|| self.config.policy());
        Ok(Podbay::of(self.config, policy, audit, self.provider))
    }
}
