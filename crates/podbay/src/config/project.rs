//! What a project may set: a `podbay.toml` found in the working directory, or a workspace's `.env`.
//!
//! A sandbox may have written these files, or a cloned repository brought them. So they can only leave the sandbox with less
//! than it would have without them; the table says for each setting how.

use serde_json::Value as Json;

use super::setting::{ProjectPower, Setting};
use super::value::Value;
use super::{Config, ConfigError, Given, Layer, bad};

/// How much is allowed without the project's file.
enum Bound {
    Unlimited,
    Most(Value),
}

impl Config {
    /// Reads the text of a file that was found in a project: it can only narrow what holds without it.
    ///
    /// Read what has full power first, so that this file is compared with it.
    ///
    /// # Errors
    /// When it sets something that a project may not set, has an unknown setting or an invalid value.
    pub fn read_project_toml(&mut self, text: &str, from: &str) -> Result<(), ConfigError> {
        self.read_text(text, from, Layer::Project)
    }

    /// Reads variables that come from a project's `.env` file: they have the power of a project's settings file.
    ///
    /// # Errors
    /// When one sets something that a project may not set, is unknown or has an invalid value.
    pub fn read_project_variables(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
        from: &str,
    ) -> Result<(), ConfigError> {
        self.read_variables(variables, from, Layer::Project)
    }

    /// Takes a project's value if it only narrows.
    pub(super) fn narrow(&mut self, setting: &'static Setting, from: &str, value: Value) -> Result<(), ConfigError> {
        match setting.project {
            ProjectPower::Nothing => {
                return Err(ConfigError::NotForProjects {
                    from: from.to_owned(),
                    key: setting.key,
                    variable: setting.variable(),
                });
            }
            ProjectPower::Choose => {}
            ProjectPower::Lower => self.check_lower(setting, from, &value)?,
            ProjectPower::Add => self.check_labels(setting, from, &value)?,
        }
        let value = match (self.project.remove(setting.key), setting.project) {
            (Some(before), ProjectPower::Add) => sum(&before.value, &value),
            (Some(before), ProjectPower::Lower) if before.value.amount() < value.amount() => before.value,
            _ => value,
        };
        self.project.insert(setting.key, Given { layer: Layer::Project, from: from.to_owned(), value });
        Ok(())
    }

    fn check_lower(&self, setting: &'static Setting, from: &str, value: &Value) -> Result<(), ConfigError> {
        let refuse = |reason: String| Err(bad(from, setting.key)(reason));
        let Some(asked) = value.amount().filter(|amount| *amount > 0.0) else {
            return refuse(format!(
                "a project can only lower this limit to a value above zero, and {} isn't one",
                value.shown(setting.kind)
            ));
        };
        match self.bound(setting)? {
            Bound::Most(most) if most.amount().is_none_or(|most| asked > most) => refuse(format!(
                "a project can only lower this limit, and {} is more than {}; to raise it, use {}",
                value.shown(setting.kind),
                most.shown(setting.kind),
                instead(setting.key, &setting.variable()),
            )),
            _ => Ok(()),
        }
    }

    /// What holds without the project's file, apart from the environment and code, which override it anyway.
    fn bound(&self, setting: &'static Setting) -> Result<Bound, ConfigError> {
        if let Some(given) = self.values.get(setting.key).filter(|given| given.layer < Layer::Project) {
            return Ok(match &given.value {
                Value::None => Bound::Unlimited,
                value => Bound::Most(value.clone()),
            });
        }
        // This one depends on the machine.
        #[cfg(target_os = "linux")]
        if setting.key == "local.memory" {
            return Ok(podbay_local::default_limits()
                .memory
                .map_or(Bound::Unlimited, |most| Bound::Most(Value::Number(most))));
        }
        match setting.default {
            None => Ok(Bound::Unlimited),
            Some(text) => Value::parse(setting.kind, text).map(Bound::Most).map_err(bad("defaults", setting.key)),
        }
    }

    /// Sandboxes are found by labels, and on a cluster selected by them.
    fn check_labels(&self, setting: &Setting, from: &str, value: &Value) -> Result<(), ConfigError> {
        let Value::Map(labels) = value else { return Ok(()) };
        let refuse = |reason: String| Err(bad(from, setting.key)(reason));
        // Labels with a domain say whose conversation a sandbox belongs to, or mean something to the cluster.
        if let Some(key) = labels.keys().find(|key| key.contains('/')) {
            return refuse(format!("a project's labels can't have a '/' in their names, as {key:?} has"));
        }
        // Where somebody chose the prefix, the cluster's NetworkPolicies and quotas may select by these labels.
        match self.values.keys().find(|key| key.ends_with(".label_prefix")) {
            Some(prefix) => refuse(format!(
                "{prefix} is set, so the cluster may act on labels, and a project can't add any; use {}",
                instead(setting.key, &setting.variable())
            )),
            None => Ok(()),
        }
    }

    /// Checks a project's labels again, for a prefix that was set after the project was read.
    pub(super) fn check_project_labels(&self) -> Result<(), ConfigError> {
        match (self.project.get("labels"), super::lookup::find("labels")) {
            (Some(labels), Some(setting)) => self.check_labels(setting, &labels.from, &labels.value),
            _ => Ok(()),
        }
    }

    /// A setting's value, with what a project narrows it to.
    pub(super) fn effective(&self, setting: &Setting) -> Option<Value> {
        match (self.values.get(setting.key), self.project.get(setting.key), setting.project) {
            (Some(given), Some(project), ProjectPower::Add) => Some(sum(&project.value, &given.value)),
            _ => self.get(setting.key).cloned(),
        }
    }
}

/// Where to put a setting that a project can't set.
pub(super) fn instead(key: &str, variable: &str) -> String {
    format!(
        "your own file (~/.config/podbay/podbay.toml), the variable {variable}, --set {key}=…, or a file named by --config \
         or PODBAY_CONFIG"
    )
}

/// Both together; the second wins where they contradict each other.
fn sum(first: &Value, second: &Value) -> Value {
    match (first, second) {
        (Value::List(first), Value::List(second)) => {
            let mut list = second.clone();
            list.extend(first.iter().filter(|item| !second.contains(item)).cloned());
            Value::List(list)
        }
        (Value::Map(first), Value::Map(second)) => {
            Value::Map(first.iter().chain(second).map(|(name, text)| (name.clone(), text.clone())).collect())
        }
        _ => second.clone(),
    }
}

impl Config {
    /// What the environment and a project's variables set, as [`set_value`](Self::set_value) reads it again.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, Json)> + '_ {
        super::SETTINGS.iter().filter_map(|setting| {
            let from_environment = self.values.get(setting.key).is_some_and(|given| given.layer == Layer::Environment);
            (from_environment || self.project.contains_key(setting.key))
                .then(|| Some((setting.key, self.effective(setting)?.written(setting.kind))))
                .flatten()
        })
    }
}

#[cfg(test)]
mod tests;
