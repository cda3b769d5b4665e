//! Settings from a program's flags.

use super::value::Value;
use super::{Config, ConfigError, Layer, Setting, SettingKind, bad, lookup, unknown};

impl Config {
    /// Sets a value as [`set`](Self::set) does, for a flag that errors and [`entries`](Self::entries) name as the source.
    ///
    /// # Errors
    /// When the setting is unknown or the value is invalid.
    pub fn set_by(&mut self, flag: &str, key: &str, text: &str) -> Result<(), ConfigError> {
        let setting = known(flag, key)?;
        let value = Value::parse(setting.kind, text).map_err(bad(flag, key))?;
        self.put(setting, Layer::Code, flag, value)
    }

    /// Adds an item to a list: a flag that may be repeated keeps what a file says.
    ///
    /// # Errors
    /// When there is no such list, or the item is invalid.
    pub fn add_item(&mut self, flag: &str, key: &str, item: impl Into<String>) -> Result<(), ConfigError> {
        let setting = known(flag, key)?;
        if !matches!(setting.kind, SettingKind::List | SettingKind::Mounts) {
            return Err(bad(flag, key)("it isn't a list".to_owned()));
        }
        let mut list = self.list(key);
        list.push(item.into());
        let value = Value::from_json(setting.kind, &list.into()).map_err(bad(flag, key))?;
        self.put(setting, Layer::Code, flag, value)
    }

    /// Adds an entry to a table; it replaces one of the same name.
    ///
    /// # Errors
    /// When there is no such table.
    pub fn add_pair(
        &mut self,
        flag: &str,
        key: &str,
        (name, text): (impl Into<String>, impl Into<String>),
    ) -> Result<(), ConfigError> {
        let setting = known(flag, key)?;
        if setting.kind != SettingKind::Map {
            return Err(bad(flag, key)("it isn't a table".to_owned()));
        }
        let mut map = self.map(key);
        map.insert(name.into(), text.into());
        self.put(setting, Layer::Code, flag, Value::Map(map))
    }

    /// The namespace of sandboxes on a cluster, if one is set.
    pub fn namespace(&self) -> Option<&str> {
        self.text("cluster.namespace")
    }

    /// Whether any source sets this.
    pub fn is_set(&self, key: &str) -> bool {
        self.get(key).is_some()
    }
}

/// The setting of a key.
pub(super) fn known(from: &str, key: &str) -> Result<&'static Setting, ConfigError> {
    lookup::find(key).ok_or_else(|| unknown(from, key, lookup::hint(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_repeated_adds_to_what_is_there() {
        let mut config = Config::default();
        config.read_toml("env = { A = \"file\", B = \"file\" }\n[policy]\ndeny_commands = [\"rm\"]\n", "f").unwrap();
        config.add_pair("--env", "env", ("B", "flag, with a comma")).unwrap();
        config.add_item("--deny", "policy.deny_commands", "curl").unwrap();
        assert_eq!(config.map("env")["A"], "file");
        assert_eq!(config.map("env")["B"], "flag, with a comma");
        assert_eq!(config.list("policy.deny_commands"), ["rm", "curl"]);
        let entries: Vec<_> = config.entries().map(|entry| (entry.key, entry.from)).collect();
        assert_eq!(entries[0], ("env", "--env".to_owned()));
    }

    #[test]
    fn flags_say_who_they_are_when_they_make_no_sense() {
        let mut config = Config::default();
        let unknown = config.set_by("--set", "pollicy.root", "/x").unwrap_err().to_string();
        assert_eq!(unknown, "--set: unknown setting \"pollicy.root\"; did you mean \"policy.root\"?");
        let bad = config.set_by("--set", "ttl", "soon").unwrap_err().to_string();
        assert!(bad.starts_with("--set: ttl: \"soon\" isn't a time"), "{bad}");
        assert!(config.add_item("--x", "ttl", "1").unwrap_err().to_string().contains("isn't a list"));
    }
}
