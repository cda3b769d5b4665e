//! The core's tables: operations, settings, errors. Tests compare the package with them.

use napi_derive::napi;
use podbay::config::{SETTINGS, SettingKind};
use podbay::{ErrorName, OPERATIONS};

/// One setting, as `SETTINGS` lists it.
#[napi(object, object_from_js = false)]
pub struct Setting {
    /// Its key in podbay.toml.
    pub key: String,
    /// Its name in the environment.
    pub variable: String,
    /// What its value is: text, secret, choice, flag, count, real, size, time, quantity, list, mounts, map, id, object or
    /// objects.
    pub kind: String,
    /// The allowed values of a choice.
    pub choices: Vec<String>,
    /// What it does.
    pub help: String,
    /// The default, in human-readable form.
    pub default: String,
    /// The modes in which it applies.
    pub modes: Vec<String>,
}

/// The class and the code of a failure.
#[napi(object, object_from_js = false)]
pub struct ErrorEntry {
    /// The code.
    pub code: String,
    /// The class.
    pub name: String,
}

/// All settings.
#[napi]
pub fn settings() -> Vec<Setting> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let entry = |setting: &'static podbay::config::Setting| Setting {
        key: setting.key.to_owned(),
        variable: setting.variable(),
        kind: setting.kind.name(),
        choices: match setting.kind {
            SettingKind::Choice(choices) => words(choices),
            _ => Vec::new(),
        },
        help: setting.help.to_owned(),
        default: setting.default_text().to_owned(),
        modes: setting.modes().iter().map(|mode| (*mode).to_owned()).collect(),
    };
    SETTINGS.iter().map(entry).collect()
}

/// The names of all operations for users.
#[napi]
pub fn operations() -> Vec<String> {
    OPERATIONS.iter().filter(|operation| operation.for_users).map(|operation| operation.name.to_owned()).collect()
}

/// The classes and codes of all failures.
#[napi]
pub fn errors() -> Vec<ErrorEntry> {
    ErrorName::all().map(|name| ErrorEntry { code: name.code.to_owned(), name: name.exception.to_owned() }).collect()
}

/// The package's version.
#[napi]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}
