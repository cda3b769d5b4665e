//! From settings to the audit log.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use podbay_client::mount::MountSpec;

use super::value::Value;
use super::{Config, ConfigError, bad};
use crate::audit::{Audit, AuditLog, Rotation};

const FILE: &str = "audit.file";
const STRICT: &str = "audit.strict";

/// What stands for the sandbox's id in the path of a workspace.
const ID: &str = "{id}";

impl Config {
    /// The audit log; it records nothing unless `audit.file` is set.
    ///
    /// # Errors
    /// When the file can't be opened, can't be an audit log, or is where sandboxes could write.
    pub fn audit(&self) -> Result<Audit, ConfigError> {
        let strict = |audit: Audit| if self.is_audit_strict() { audit.strict() } else { audit };
        let Some(path) = self.text(FILE) else { return Ok(strict(Audit::default())) };
        let limit = |key: &str, default| match self.get(key) {
            None => default,
            Some(Value::Number(number)) => Some(*number),
            Some(_) => None,
        };
        self.check_reach(Path::new(path))?;
        let max_bytes = limit("audit.max_bytes", Some(Rotation::DEFAULT_MAX_BYTES));
        let log = AuditLog::open(path, Rotation { max_bytes, keep: limit("audit.keep", None) })
            .map_err(|error| ConfigError::File { path: path.into(), reason: error.to_string() })?;
        Ok(strict(Audit::new(log)))
    }

    /// Whether operations that can't be recorded are refused.
    pub fn is_audit_strict(&self) -> bool {
        self.flag(STRICT)
    }

    /// An audit that is strict and records nothing would look like one that records everything.
    ///
    /// # Errors
    /// When `audit.strict` is set and nobody is told of operations.
    pub(crate) fn check_recorded(&self, audit: &Audit) -> Result<(), ConfigError> {
        match self.held(STRICT) {
            Some(given) if self.is_audit_strict() && !audit.is_on() => {
                let reason = "nothing records operations; set audit.file too, or pass an audit function in code";
                Err(bad(&given.from, STRICT)(reason.into()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a log that commands in a sandbox on this machine could change or remove.
    fn check_reach(&self, file: &Path) -> Result<(), ConfigError> {
        if self.mode_row().on_cluster {
            return Ok(());
        }
        let workspace = self.text("local.workspace").map(|path| ("the workspace", PathBuf::from(path)));
        // A mount that can't be read is refused with the sandbox.
        let mounts = self.list("local.mounts").into_iter().filter_map(|mount| mount.parse::<MountSpec>().ok());
        let mounts = mounts.filter(|mount| mount.writable).map(|mount| ("the writable mount", mount.host));
        for (what, directory) in workspace.into_iter().chain(mounts) {
            if is_below(file, &directory) {
                let reason = format!(
                    "commands in the sandbox could change the log, because it is in {what} {}; choose a file outside it",
                    directory.display()
                );
                let from = self.held(FILE).map_or("settings", |given| given.from.as_str());
                return Err(bad(from, FILE)(reason));
            }
        }
        Ok(())
    }
}

/// Whether a file is in a directory, or is it. Neither has to exist. Both are compared by the names that they are given and by those
/// that they really have: whoever can change a link on the way to the log can move the log.
fn is_below(file: &Path, directory: &Path) -> bool {
    let names = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (file, directory) = (names(file), names(directory));
    starts_with(&file, &directory) || starts_with(&real(&file), &real(&directory))
}

/// A path without symbolic links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    for existing in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (std::fs::canonicalize(existing), path.strip_prefix(existing)) {
            // Joining nothing would add a slash, after which a file isn't itself any more.
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}

fn starts_with(file: &Path, directory: &Path) -> bool {
    // An absolute path keeps its `..`, which only matters where it doesn't exist.
    let mut names = file.components();
    let by_id = |name: &OsStr| name.to_string_lossy().contains(ID);
    let starts = directory.components().all(|wanted| match (names.next(), wanted) {
        (Some(name), Component::Normal(wanted)) if by_id(wanted) => matches!(name, Component::Normal(_)),
        (name, wanted) => name == Some(wanted),
    });
    // Where the log is, there can be no sandbox's workspace.
    starts && (names.next().is_some() || !directory.file_name().is_some_and(by_id))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn refusal(file: &Path, settings: &[(&str, &Path, &str)]) -> Option<String> {
        let mut config = Config::default();
        config.set(FILE, file.to_str().unwrap()).unwrap();
        for (key, path, rest) in settings {
            config.set(key, &format!("{}{rest}", path.display())).unwrap();
        }
        config.audit().err().map(|error| error.to_string())
    }

    /// `PODBAY_AUDIT_FILE=audit.jsonl podbay run --workspace .` put the log where the sandbox could rewrite it.
    #[test]
    fn a_log_within_the_sandboxs_reach_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["work/deep", "logs", "mount"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        symlink(at("work/deep"), at("to-work")).unwrap();
        symlink(at("work"), at("alias")).unwrap();
        symlink(at("logs"), at("work/to-logs")).unwrap();
        let workspace = |path: &str| at(path);
        for (file, work) in [
            ("work/audit", "work"),
            ("work/deep/audit", "work"),
            ("to-work/audit", "work"),
            ("work/audit", "alias"),
            // The sandbox can't write to the log's directory, but say which one it is.
            ("work/to-logs/audit", "work"),
            ("logs/box-1/audit", "logs/{id}"),
            ("logs/box-1/w/audit", "logs/{id}/w"),
        ] {
            let refused = refusal(&at(file), &[("local.workspace", &workspace(work), "")]);
            let refused = refused.unwrap_or_else(|| panic!("{file} in {work}"));
            assert!(refused.contains("in the workspace") && refused.contains("settings: audit.file"), "{refused}");
            assert!(!at(file).exists());
        }
        let mounted = |access: &str| refusal(&at("mount/audit"), &[("local.mounts", &at("mount"), access)]);
        assert!(mounted(":/m:rw").unwrap().contains("the writable mount"));
        assert_eq!(mounted(":/m:ro"), None);
        for (file, work) in
            [("audit", "work"), ("workaudit", "work"), ("logs/audit", "logs/{id}"), ("audit2", "logs/{id}")]
        {
            assert_eq!(refusal(&at(file), &[("local.workspace", &workspace(work), "")]), None, "{file} in {work}");
        }
        // Sandboxes on a cluster see nothing of this machine.
        let raw = [("mode", Path::new("raw"), ""), ("local.workspace", &*at("work"), "")];
        assert_eq!(refusal(&at("work/audit"), &raw), None);
    }

    #[test]
    fn a_mounted_file_isnt_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("audit");
        std::fs::write(&file, "").unwrap();
        assert!(refusal(&file, &[("local.mounts", &file, ":/audit:rw")]).unwrap().contains("writable mount"));
        assert!(is_below(Path::new("/x"), Path::new("/")));
    }

    /// It was accepted, and nothing was recorded.
    #[test]
    fn a_strict_audit_needs_a_log() {
        let mut config = Config::default();
        config.set(STRICT, "true").unwrap();
        let refused = config.check_recorded(&config.audit().unwrap()).unwrap_err().to_string();
        assert!(refused.starts_with("settings: audit.strict: nothing records operations"), "{refused}");
        config.set(STRICT, "false").unwrap();
        config.check_recorded(&config.audit().unwrap()).unwrap();
    }
}
