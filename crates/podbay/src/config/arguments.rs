//! Settings as arguments of the packages for other languages, which name them without their sections.

use serde_json::Value as Json;

use super::setting::{SETTINGS, Setting, SettingKind};
use super::{Config, ConfigError};

/// Names that earlier packages used, and the settings that they stand for.
const ALIASES: [(&str, &str); 3] =
    [("root_dir", "policy.root"), ("strict_audit", "audit.strict"), ("audit_log", "audit.file")];

impl Config {
    /// Sets values by names without a section: `image` is `raw.image` in raw mode. Set `mode` before.
    ///
    /// # Errors
    /// When a setting is unknown or a value is invalid.
    pub fn set_arguments(&mut self, arguments: impl IntoIterator<Item = (String, Json)>) -> Result<(), ConfigError> {
        let mode = self.mode().to_owned();
        for (name, value) in arguments {
            self.set_value(&full_key(&mode, &name), &value)?;
        }
        Ok(())
    }
}

/// The key of a name without its section.
fn full_key(mode: &str, name: &str) -> String {
    if let Some((_, full)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
        return (*full).to_owned();
    }
    let named = |setting: &&Setting| {
        let last = setting.key.rsplit('.').next();
        setting.key == name || last == Some(name) && setting.modes().contains(&mode)
    };
    // An unknown name is taken for one of the mode's own, so that the error suggests one of these.
    let unknown = || if name.contains('.') { name.to_owned() } else { format!("{}.{name}", mode.replace('-', "_")) };
    SETTINGS.iter().find(named).map_or_else(unknown, |setting| setting.key.to_owned())
}

impl SettingKind {
    /// Its name in the packages' tables of settings; a limit has that of what is limited.
    pub fn name(self) -> String {
        match self.of_limit() {
            Self::Choice(_) => "choice".to_owned(),
            kind => format!("{kind:?}").to_lowercase(),
        }
    }
}
