//! Settings: where they come from, which source wins, and which source may set what.
//!
//! Code and flags override the environment (`PODBAY_…`), which overrides a project's `podbay.toml`, which overrides the user's
//! own file, which overrides the defaults. All of them have full power except a `podbay.toml` that is merely found in the
//! working directory: a sandbox may have written it, so it can only narrow what holds without it.
//!
//! [`SETTINGS`] is the one table of them all: the file's keys, the environment's variables, the command line's flags and help,
//! the documentation and Python's dataclasses are made from it. Unknown keys are rejected, and the error suggests the closest
//! match.

mod arguments;
mod audit;
mod file;
mod flags;
#[cfg(test)]
mod generated;
mod lookup;
mod mode;
mod process;
mod project;
mod providers;
mod setting;
mod value;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use file::FILE;
pub use mode::{MODES, Mode};
pub(crate) use mode::{how_to_get_a_pool, how_to_suspend};
use serde_json::Value as Json;
pub use setting::{Flag, ProjectPower, SETTINGS, Setting, SettingKind};
use value::Value;

use crate::policy::{CommandRules, Matching, Policy};

/// The settings that are lists of path prefixes.
const PREFIXES: [&str; 2] = ["policy.allow_prefixes", "policy.deny_prefixes"];

/// The root of `policy.virtual_mode` unless `policy.root` names one: the working directory of commands.
const VIRTUAL_ROOT: &str = "/workspace";

/// Variables that begin with `PODBAY_` but aren't settings: the settings file itself, and a directory of daemons to build with.
const NOT_SETTINGS: [&str; 2] = ["PODBAY_CONFIG", "PODBAY_DAEMON_DIR"];

/// Variables of the tests, which run programs that read settings. No program acts on them but the tests, and podbayd in a build for
/// tests; releases ignore them too, so that whoever runs the tests can also run a release.
const OF_TESTS: [&str; 8] = [
    "PODBAY_CACHE",
    "PODBAY_LANDLOCK_ABI",
    "PODBAY_PYTHON",
    "PODBAY_RECORD",
    "PODBAY_REQUIRE",
    "PODBAY_RIG",
    "PODBAY_RIG_NAME",
    "PODBAY_SOAK",
];

/// Why settings can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no such setting.
    #[error("{from}: unknown setting {key:?}; {hint}")]
    UnknownKey {
        /// The file, flag or other source that has it.
        from: String,
        /// The key.
        key: String,
        /// What was probably meant.
        hint: String,
    },
    /// A value is invalid.
    #[error("{from}: {key}: {reason}")]
    BadValue {
        /// The file, flag or other source that has it.
        from: String,
        /// The setting.
        key: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A project's file sets something that it isn't allowed to set.
    #[error(
        "{from}: {key}: a file in the project can't set this, because a sandbox or a cloned repository may have written it. To \
         set it, use {}",
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

/// The source of a value. Later ones win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    /// The user's own file, or the one named in its place.
    File,
    /// A file found in the working directory.
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

/// A setting that is in effect, for people to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveSetting {
    /// Its key.
    pub key: &'static str,
    /// Its source; several where a project adds to a list.
    pub from: String,
    /// What that source may do.
    pub power: &'static str,
    /// Its value as text, without what may be secret.
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
    /// Reads a file that the user named, and that therefore has full power.
    ///
    /// # Errors
    /// When it can't be read, or has an unknown setting or an invalid value.
    pub fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = file::read_named(path).map_err(|reason| ConfigError::File { path: path.to_owned(), reason })?;
        self.read_toml(&text, &path.display().to_string())
    }

    /// Reads the text of a file with full power. Errors name it as `from`.
    ///
    /// # Errors
    /// When it isn't TOML, or has an unknown setting or an invalid value.
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
            match (lookup::find(&key), value) {
                (Some(setting), value) => {
                    let value = Value::from_json(setting.kind, value).map_err(bad(from, &key))?;
                    self.put(setting, layer, from, value)?;
                }
                // In an unknown section, the first key shows best what was meant.
                (None, Json::Object(table)) if lookup::is_section(&key) || !table.is_empty() => {
                    self.read_table(&key, table, from, layer)?;
                }
                _ => return Err(unknown(from, &key, lookup::hint(&key))),
            }
        }
        Ok(())
    }

    /// Reads an environment.
    ///
    /// # Errors
    /// When a variable `PODBAY_…` is unknown or has an invalid value.
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
            let other = NOT_SETTINGS.contains(&name.as_str()) || OF_TESTS.contains(&name.as_str());
            if other || !name.starts_with("PODBAY_") {
                continue;
            }
            let Some(setting) = lookup::find_variable(&name) else {
                return Err(unknown(from, &name, lookup::hint_for_variable(&name)));
            };
            let value = Value::parse(setting.kind, &text).map_err(bad(from, &name))?;
            self.put(setting, layer, from, value)?;
        }
        Ok(())
    }

    /// Sets a value given as text.
    ///
    /// # Errors
    /// When the setting is unknown or the value is invalid.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), ConfigError> {
        self.set_by("settings", key, text)
    }

    /// Sets a value given by code in another language.
    ///
    /// # Errors
    /// When the setting is unknown or the value is invalid.
    pub fn set_value(&mut self, key: &str, value: &Json) -> Result<(), ConfigError> {
        let setting = flags::known("settings", key)?;
        let value = Value::from_json(setting.kind, value).map_err(bad("settings", key))?;
        self.put(setting, Layer::Code, "settings", value)
    }

    fn put(&mut self, setting: &'static Setting, layer: Layer, from: &str, value: Value) -> Result<(), ConfigError> {
        check_prefixes(setting, &value).map_err(bad(from, setting.key))?;
        if layer == Layer::Project {
            return self.narrow(setting, from, value);
        }
        // The stronger source wins, in whichever order they are read.
        if self.values.get(setting.key).is_none_or(|before| before.layer <= layer) {
            self.values.insert(setting.key, Given { layer, from: from.to_owned(), value });
        }
        Ok(())
    }

    /// What is set, in the order of the table.
    pub fn entries(&self) -> impl Iterator<Item = EffectiveSetting> + '_ {
        SETTINGS.iter().filter_map(|setting| {
            let value = self.effective(setting)?.shown(setting.kind);
            let held = self.held(setting.key)?;
            let (from, power) = match (self.values.get(setting.key), self.project.get(setting.key), setting.project) {
                (Some(given), Some(project), ProjectPower::Add) => {
                    (format!("{} + {}", given.from, project.from), "full + may only add")
                }
                _ => (held.from.clone(), if held.layer == Layer::Project { "may only narrow" } else { "full" }),
            };
            Some(EffectiveSetting { key: setting.key, from, power, value })
        })
    }

    /// The value that wins, for a setting that isn't added up from several sources.
    fn held(&self, key: &str) -> Option<&Given> {
        match (self.values.get(key), self.project.get(key)) {
            (Some(given), Some(_)) if given.layer > Layer::Project => Some(given),
            // A project's value was compared with the file's when it was read. If the file came later, the lower one wins.
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
            Some(Value::Text(text) | Value::Secret(text)) => Some(text),
            _ => None,
        }
    }

    fn list(&self, key: &str) -> Vec<String> {
        match lookup::find(key).and_then(|setting| self.effective(setting)) {
            Some(Value::List(list)) => list,
            _ => Vec::new(),
        }
    }

    fn time(&self, key: &str) -> Option<Duration> {
        match self.get(key) {
            Some(Value::Time(time)) => Some(*time),
            _ => None,
        }
    }

    fn map(&self, key: &str) -> BTreeMap<String, String> {
        match lookup::find(key).and_then(|setting| self.effective(setting)) {
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
        self.time("ttl")
    }

    /// How long a sandbox may be idle.
    pub fn idle_ttl(&self) -> Option<Duration> {
        self.time("idle_ttl")
    }

    /// The rules on paths and commands.
    pub fn policy(&self) -> Policy {
        let paths = |key: &str| self.list(key).into_iter().map(Into::into).collect();
        let matching = match self.text("policy.match") {
            Some("substring") => Matching::Substring,
            _ => Matching::Words,
        };
        let virtual_paths = self.flag("policy.virtual_mode");
        let root = self.text("policy.root").or(virtual_paths.then_some(VIRTUAL_ROOT));
        Policy {
            paths: podbay_client::files::Scope {
                root: root.map(Into::into),
                virtual_paths,
                allow_prefixes: paths("policy.allow_prefixes"),
                deny_prefixes: paths("policy.deny_prefixes"),
                rules_for_reads: self.flag("policy.rules_for_reads"),
                workdir: None,
            },
            commands: CommandRules::deny(self.list("policy.deny_commands"), matching),
        }
    }
}

/// The sandbox refuses such prefixes as well, but with every file operation, and it doesn't know the setting.
fn check_prefixes(setting: &Setting, value: &Value) -> Result<(), String> {
    let (true, Value::List(prefixes)) = (PREFIXES.contains(&setting.key), value) else { return Ok(()) };
    let wrong =
        |prefix: &&String| prefix.is_empty() || prefix.contains('\0') || prefix.split('/').any(|name| name == "..");
    match prefixes.iter().find(wrong) {
        Some(prefix) => {
            Err(format!("{prefix:?} can't be a prefix: write a path that isn't empty, without '..' or a NUL byte"))
        }
        None => Ok(()),
    }
}

fn unknown(from: &str, key: &str, hint: String) -> ConfigError {
    ConfigError::UnknownKey { from: from.to_owned(), key: key.to_owned(), hint }
}

fn bad(from: &str, key: &str) -> impl FnOnce(String) -> ConfigError {
    let (from, key) = (from.to_owned(), key.to_owned());
    move |reason| ConfigError::BadValue { from, key, reason }
}

#[cfg(test)]
mod effects;
#[cfg(test)]
mod tests;
