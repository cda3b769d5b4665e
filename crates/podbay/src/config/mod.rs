//! Settings, from four places with one order: what code or flags say beats the environment (`PODBAY_…`), that beats
//! `podbay.toml`, and that beats the defaults.
//!
//! [`SETTINGS`] is the one table of them all: the file's keys, the environment's names, the command line's help and the
//! documentation come from it. A key that isn't in it is refused, with the nearest one that is.

mod flags;
mod providers;
mod setting;
mod value;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value as Json;
pub use setting::{Kind, SETTINGS, Setting};
use value::Value;

use crate::audit::{Audit, JsonLines};
use crate::policy::{CommandRules, Matching, Policy};

/// The file that is read when no other is named.
pub const FILE: &str = "podbay.toml";

/// Names that begin with `PODBAY_` and are no settings.
const NOT_SETTINGS: [&str; 11] = [
    "PODBAY_BENCH_BINARY",
    "PODBAY_CACHE",
    "PODBAY_CONFIG",
    "PODBAY_DAEMON_DIR",
    "PODBAY_LOG",
    "PODBAY_LONG",
    "PODBAY_PYTHON",
    "PODBAY_REQUIRE",
    "PODBAY_RIG",
    "PODBAY_RIG_NAME",
    "PODBAY_TOKEN",
];

/// Why settings can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no such setting.
    #[error("{from}: there is no setting {key:?}; {hint}")]
    UnknownKey {
        /// Where it stands.
        from: String,
        /// The key.
        key: String,
        /// What was meant, perhaps.
        hint: String,
    },
    /// A value makes no sense.
    #[error("{from}: {key}: {reason}")]
    BadValue {
        /// Where it stands.
        from: String,
        /// The setting.
        key: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// The file can't be read.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// Where a value comes from. The later ones win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// `podbay.toml`.
    File,
    /// `PODBAY_…`.
    Environment,
    /// Code, or a flag of the command line.
    Code,
}

/// Settings.
#[derive(Debug, Clone, Default)]
pub struct Config {
    values: BTreeMap<&'static str, (Layer, String, Value)>,
}

impl Config {
    /// The settings of this process: `podbay.toml` in its directory, or the file that `PODBAY_CONFIG` names, and the
    /// environment.
    ///
    /// # Errors
    /// When a setting is unknown or makes no sense, or a file that was named isn't there.
    pub fn of_process() -> Result<Self, ConfigError> {
        Self::of_process_with(None)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it can't be read, or a setting in it is unknown or makes no sense.
    pub fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let failed = |reason: String| ConfigError::File { path: path.to_owned(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        self.read_toml(&text, &path.display().to_string()).map_err(|error| match error {
            ConfigError::File { reason, .. } => failed(reason),
            error => error,
        })
    }

    /// Reads the text of a file, whose name is told in errors.
    ///
    /// # Errors
    /// When it isn't TOML, or a setting in it is unknown or makes no sense.
    pub fn read_toml(&mut self, text: &str, from: &str) -> Result<(), ConfigError> {
        let table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| ConfigError::File { path: from.into(), reason: error.to_string() })?;
        let table = serde_json::to_value(table)
            .map_err(|error| ConfigError::File { path: from.into(), reason: error.to_string() })?;
        self.read_table("", table.as_object().into_iter().flatten(), from)
    }

    fn read_table<'a>(
        &mut self,
        prefix: &str,
        table: impl IntoIterator<Item = (&'a String, &'a Json)>,
        from: &str,
    ) -> Result<(), ConfigError> {
        for (name, value) in table {
            let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match (setting::find(&key), value) {
                (Some(setting), value) => {
                    let value = Value::from_json(setting.kind, value).map_err(bad(from, &key))?;
                    self.put(setting, Layer::File, from, value);
                }
                // In a section that there isn't, the first key tells best what was meant.
                (None, Json::Object(table)) if setting::is_section(&key) || !table.is_empty() => {
                    self.read_table(&key, table, from)?;
                }
                _ => return Err(unknown(from, &key, setting::nearest(&key))),
            }
        }
        Ok(())
    }

    /// Reads an environment.
    ///
    /// # Errors
    /// When a variable `PODBAY_…` is unknown or makes no sense.
    pub fn read_environment(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        let from = "environment";
        for (name, text) in variables {
            if !name.starts_with("PODBAY_") || NOT_SETTINGS.contains(&name.as_str()) {
                continue;
            }
            let Some(setting) = SETTINGS.iter().find(|setting| setting.variable() == name) else {
                return Err(unknown(from, &name, setting::nearest_variable(&name)));
            };
            let value = Value::parse(setting.kind, &text).map_err(bad(from, &name))?;
            self.put(setting, Layer::Environment, from, value);
        }
        Ok(())
    }

    /// Sets a value, as a flag or code gives it.
    ///
    /// # Errors
    /// When the setting is unknown or the value makes no sense.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), ConfigError> {
        let setting = setting::find(key).ok_or_else(|| unknown("settings", key, setting::nearest(key)))?;
        let value = Value::parse(setting.kind, text).map_err(bad("settings", key))?;
        self.put(setting, Layer::Code, "settings", value);
        Ok(())
    }

    /// Sets a value, as code in another language gives it.
    ///
    /// # Errors
    /// When the setting is unknown or the value makes no sense.
    pub fn set_value(&mut self, key: &str, value: &Json) -> Result<(), ConfigError> {
        let setting = setting::find(key).ok_or_else(|| unknown("settings", key, setting::nearest(key)))?;
        let value = Value::from_json(setting.kind, value).map_err(bad("settings", key))?;
        self.put(setting, Layer::Code, "settings", value);
        Ok(())
    }

    fn put(&mut self, setting: &'static Setting, layer: Layer, from: &str, value: Value) {
        // Whichever is read first: the stronger place wins.
        if self.values.get(setting.key).is_none_or(|(before, ..)| *before <= layer) {
            self.values.insert(setting.key, (layer, from.to_owned(), value));
        }
    }

    /// What is set, in the order of keys: the key, where it comes from, and its value as text.
    pub fn entries(&self) -> impl Iterator<Item = (&'static str, &str, String)> {
        self.values.iter().map(|(key, (_, from, value))| {
            let kind = setting::find(key).map_or(Kind::Text, |setting| setting.kind);
            (*key, from.as_str(), value.shown(kind))
        })
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).map(|(_, _, value)| value)
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn list(&self, key: &str) -> Vec<String> {
        match self.get(key) {
            Some(Value::List(list)) => list.clone(),
            _ => Vec::new(),
        }
    }

    fn number(&self, key: &str) -> Option<u64> {
        match self.get(key) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    fn map(&self, key: &str) -> BTreeMap<String, String> {
        match self.get(key) {
            Some(Value::Map(map)) => map.clone(),
            _ => BTreeMap::new(),
        }
    }

    fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), Some(Value::Flag(true)))
    }

    /// The provider's name.
    pub fn mode(&self) -> &str {
        self.text("mode").unwrap_or("local")
    }

    /// How long a sandbox lives.
    pub fn ttl(&self) -> Option<Duration> {
        self.number("ttl").map(Duration::from_millis)
    }

    /// How long a sandbox may be idle.
    pub fn idle_ttl(&self) -> Option<Duration> {
        self.number("idle_ttl").map(Duration::from_millis)
    }

    /// The rules on paths and commands.
    pub fn policy(&self) -> Policy {
        let paths = |key: &str| self.list(key).into_iter().map(Into::into).collect();
        let matching = match self.text("policy.match") {
            Some("substring") => Matching::Substring,
            _ => Matching::Words,
        };
        Policy {
            paths: podbay_client::files::Scope {
                root: self.text("policy.root").map(Into::into),
                virtual_paths: self.flag("policy.virtual_mode"),
                allow_prefixes: paths("policy.allow_prefixes"),
                deny_prefixes: paths("policy.deny_prefixes"),
                rules_for_reads: self.flag("policy.rules_for_reads"),
                workdir: None,
            },
            commands: CommandRules::deny(self.list("policy.deny_commands"), matching),
        }
    }

    /// The audit, if there is a file for it.
    ///
    /// # Errors
    /// When the file can't be opened.
    pub fn audit(&self) -> Result<Audit, ConfigError> {
        let Some(path) = self.text("audit.file") else { return Ok(Audit::default()) };
        let sink = JsonLines::append(path)
            .map_err(|error| ConfigError::File { path: path.into(), reason: error.to_string() })?;
        let audit = Audit::new(sink);
        Ok(if self.flag("audit.strict") { audit.strict() } else { audit })
    }
}

fn unknown(from: &str, key: &str, nearest: Option<String>) -> ConfigError {
    let hint = match nearest {
        Some(nearest) => format!("did you mean {nearest:?}?"),
        None => "'podbay config --all' lists those that there are".to_owned(),
    };
    ConfigError::UnknownKey { from: from.to_owned(), key: key.to_owned(), hint }
}

fn bad(from: &str, key: &str) -> impl FnOnce(String) -> ConfigError {
    let (from, key) = (from.to_owned(), key.to_owned());
    move |reason| ConfigError::BadValue { from, key, reason }
}

#[cfg(test)]
mod tests;
