//! Files of settings.

use podbay::config::Config;

pub const TOML: &[&str] = &[
    "mode = ",
    "\"local\"",
    "\"raw\"",
    "[local]",
    "[raw]",
    "[policy]",
    "\n",
    "network = ",
    "mounts = [",
    "]",
    "\"/a:/b:rw\"",
    "ttl = ",
    "\"1h\"",
    "\"none\"",
    "memory = ",
    "\"1GiB\"",
    "\"99999999999999999999TiB\"",
    "1",
    "-1",
    "true",
    "{",
    "}",
    ".",
    "=",
    "\"\"\"",
    "'",
    "env = ",
    "labels.a = ",
    "[[",
    "]]",
    "\"x\"",
    ",",
    "\u{0}",
    "é",
    "# ",
    "inf",
    "1979-05-27",
];

/// A file of settings: it is understood or refused.
///
/// # Panics
/// When the same text isn't understood twice.
pub fn settings(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut config = Config::default();
    if config.read_toml(text, "podbay.toml").is_ok() {
        let _ = config.policy();
        let mut again = Config::default();
        again.read_toml(text, "podbay.toml").expect("what was understood is understood again");
        assert_eq!(again.entries().count(), config.entries().count());
    }
}
