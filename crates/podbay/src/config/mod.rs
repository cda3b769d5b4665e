//! Settings, and which of the places that they come from may say what.
//!
//! What code or flags say beats the environment (`PODBAY_…`), that beats a project's `podbay.toml`, that beats the user's own
//! file, and that beats the defaults. All of these have full power but one: a `podbay.toml` that is merely found in the
//! working directory may have been written by a sandbox, so it can only narrow what holds without it.
//!
//! [`SETTINGS`] is the one table of them all: the file's keys, the environment's names, the command line's help, the
//! documentation and what a project may do come from it. Unknown keys are rejected, and the error suggests the closest match.

mod file;
mod flags;
mod process;
mod project;
mod providers;
mod setting;
mod value;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use file::FILE;
use serde_json::Value as Json;
pub use setting::{Kind, ProjectPower, SETTINGS, Setting};
use value::Value;

use crate::audit::{Audit, JsonLines};
use crate::policy::{CommandRules, Matching, Policy};

/// Names that begin with `PODBAY_` and are no settings.
const NOT_SETTINGS: [&str; 11] = [
    "PODBAY_BENCH_BINARY",
    "PODBAY_CACHE",
    "PODBAY_CONFIG",
    "PODBAY_DAEMON_DIR",
    "PODBAY_LOG",
    "PODBAY_PYTHON",
    "PODBAY_REQUIRE",
    "PODBAY_RIG",
    "PODBAY_RIG_NAME",
    "PODBAY_SOAK",
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
    /// A project's file sets what it has no power over.
    #[error(
        "{from}: {key}: a file in the project can't set this, because a sandbox or a cloned repository may have written it. If \
         you want it, use {}",
        project::instead(key, variable)
    )]
    NotForProjects {
        /// The file.
        from: String,
        /// The setting.
        key: &'static str,
        /// Its name in the environment.
        variable: String,
    },
    /// The file can't be read, or may not be used.
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
enum Layer {
    /// The user's own file, or the one that was named in its place.
    File,
    /// What was found in the working directory.
    Project,
    /// `PODBAY_…`.
    Environment,
    /// Code, or a flag of the command line.
    Code,
}

/// A value, and where it comes from.
#[derive(Debug, Clone)]
struct Given {
    layer: Layer,
    from: String,
    value: Value,
}

/// A setting that holds, for people to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: &'static str,
    /// Where it comes from; more than one place where a project adds to a list.
    pub from: String,
    /// What that place may do.
    pub power: &'static str,
    /// Its value as text. What may be secret is left out.
    pub value: String,
}

/// Settings.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// What was set with full power.
    values: BTreeMap<&'static str, Given>,
    /// What a project asks for, which only narrows.
    project: BTreeMap<&'static str, Given>,
}

impl Config {
    /// Reads a file that was named, and so has full power.
    ///
    /// # Errors
    /// When it can't be read, or a setting in it is unknown or makes no sense.
    pub fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = file::read_named(path).map_err(|reason| ConfigError::File { path: path.to_owned(), reason })?;
        self.read_toml(&text, &path.display().to_string())
    }

    /// Reads the text of a file with full power. Errors tell its name.
    ///
    /// # Errors
    /// When it isn't TOML, or a setting in it is unknown or makes no sense.
    pub fn read_toml(&mut self, text: &str, from: &str) -> Result<(), ConfigError> {
        self.read_text(text, from, Layer::File)
    }

    fn read_text(&mut self, text: &str, from: &str, layer: Layer) -> Result<(), ConfigError> {
        let table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| ConfigError::File { path: from.into(), reason: error.to_string() })?;
        let table = serde_json::to_value(table)
            .map_err(|error| ConfigError::File { path: from.into(), reason: error.to_string() })?;
        self.read_table("", table.as_object().into_iter().flatten(), from, layer)
    }

    fn read_table<'a>(
        &mut self,
        prefix: &str,
        table: impl IntoIterator<Item = (&'a String, &'a Json)>,
        from: &str,
        layer: Layer,
    ) -> Result<(), ConfigError> {
        for (name, value) in table {
            let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match (setting::find(&key), value) {
                (Some(setting), value) => {
                    let value = Value::from_json(setting.kind, value).map_err(bad(from, &key))?;
                    self.put(setting, layer, from, value)?;
                }
                // In a section that there isn't, the first key tells best what was meant.
                (None, Json::Object(table)) if setting::is_section(&key) || !table.is_empty() => {
                    self.read_table(&key, table, from, layer)?;
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
        self.read_variables(variables, "environment", Layer::Environment)
    }

    fn read_variables(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
        from: &str,
        layer: Layer,
    ) -> Result<(), ConfigError> {
        for (name, text) in variables {
            if !name.starts_with("PODBAY_") || NOT_SETTINGS.contains(&name.as_str()) {
                continue;
            }
            let Some(setting) = SETTINGS.iter().find(|setting| setting.variable() == name) else {
                return Err(unknown(from, &name, setting::nearest_variable(&name)));
            };
            let value = Value::parse(setting.kind, &text).map_err(bad(from, &name))?;
            self.put(setting, layer, from, value)?;
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
        self.put(setting, Layer::Code, "settings", value)
    }

    /// Sets a value, as code in another language gives it.
    ///
    /// # Errors
    /// When the setting is unknown or the value makes no sense.
    pub fn set_value(&mut self, key: &str, value: &Json) -> Result<(), ConfigError> {
        let setting = setting::find(key).ok_or_else(|| unknown("settings", key, setting::nearest(key)))?;
        let value = Value::from_json(setting.kind, value).map_err(bad("settings", key))?;
        self.put(setting, Layer::Code, "settings", value)
    }

    fn put(&mut self, setting: &'static Setting, layer: Layer, from: &str, value: Value) -> Result<(), ConfigError> {
        if layer == Layer::Project {
            return self.narrow(setting, from, value);
        }
        // Whichever is read first: the stronger place wins.
        if self.values.get(setting.key).is_none_or(|before| before.layer <= layer) {
            self.values.insert(setting.key, Given { layer, from: from.to_owned(), value });
        }
        Ok(())
    }

    /// What is set, in the order of keys.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        SETTINGS.iter().filter_map(|setting| {
            let value = self.effective(setting)?.shown(setting.kind);
            let held = self.held(setting.key)?;
            let (from, power) = match (self.values.get(setting.key), self.project.get(setting.key), setting.project) {
                (Some(given), Some(project), ProjectPower::Add) => {
                    (format!("{} + {}", given.from, project.from), "full + may only add")
                }
                _ => (held.from.clone(), if held.layer == Layer::Project { "may only narrow" } else { "full" }),
            };
            Some(Entry { key: setting.key, from, power, value })
        })
    }

    /// What holds of a setting that isn't added up from several places.
    fn held(&self, key: &str) -> Option<&Given> {
        match (self.values.get(key), self.project.get(key)) {
            (Some(given), Some(_)) if given.layer > Layer::Project => Some(given),
            // A project's value was compared with the file's when it was read; should the file have come later, the lower holds.
            (Some(given), Some(project)) => match (given.value.amount(), project.value.amount()) {
                (Some(given_amount), Some(asked)) if asked > given_amount => Some(given),
                _ => Some(project),
            },
            (given, None) => given,
            (None, project) => project,
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.held(key).map(|given| &given.value)
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn list(&self, key: &str) -> Vec<String> {
        match setting::find(key).and_then(|setting| self.effective(setting)) {
            Some(Value::List(list)) => list,
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
        match setting::find(key).and_then(|setting| self.effective(setting)) {
            Some(Value::Map(map)) => map,
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
        None => "'podbay config --all' lists all settings".to_owned(),
    };
    ConfigError::UnknownKey { from: from.to_owned(), key: key.to_owned(), hint }
}

fn bad(from: &str, key: &str) -> impl FnOnce(String) -> ConfigError {
    let (from, key) = (from.to_owned(), key.to_owned());
    move |reason| ConfigError::BadValue { from, key, reason }
}

#[cfg(test)]
mod tests;
