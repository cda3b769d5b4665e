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
        if path.is_empty() {
            return Err(self.bad_file("it is empty; name a file".into()));
        }
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

    fn bad_file(&self, reason: String) -> ConfigError {
        bad(self.held(FILE).map_or("settings", |given| given.from.as_str()), FILE)(reason)
    }

    /// Refuses a log that commands in a sandbox on this machine could change or remove, or only see: whoever can open it can lock it,
    /// and then nobody writes to it.
    fn check_reach(&self, file: &Path) -> Result<(), ConfigError> {
        if self.mode_row().on_cluster {
            return Ok(());
        }
        let workspace = self.text("local.workspace").map(|path| ("the workspace", PathBuf::from(path)));
        // A mount that can't be read is refused with the sandbox.
        let mounts = self.list("local.mounts").into_iter().filter_map(|mount| mount.parse::<MountSpec>().ok());
        let mounts = mounts.map(|mount| ("the mount", mount.host));
        let programs = visible().map(|path| ("a directory that all sandboxes see,", path));
        for (what, directory) in workspace.into_iter().chain(mounts).chain(programs) {
            if is_below(file, &directory) {
                return Err(self.bad_file(format!(
                    "commands in the sandbox could change or lock the log, because it is in {what} {}; choose a file outside it",
                    directory.display()
                )));
            }
        }
        Ok(())
    }
}

/// What every sandbox on this machine sees of it.
fn visible() -> impl Iterator<Item = PathBuf> {
    #[cfg(target_os = "linux")]
    let names = podbay_local::PROGRAMS;
    #[cfg(not(target_os = "linux"))]
    let names: [&str; 0] = [];
    names.into_iter().map(|name| Path::new("/").join(name))
}

/// Whether a file is in a directory, or is it, or a link on the way to it is there: whoever can change that link can move the log.
/// None of them has to exist.
fn is_below(file: &Path, directory: &Path) -> bool {
    let given = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let real = on_the_way(directory).pop().unwrap_or_default();
    on_the_way(file).iter().any(|place| starts_with(place, &given) || starts_with(place, &real))
}

/// The kernel's limit on links in one path.
const MOST_LINKS: usize = 40;

/// The path as it is given, the links on the way, each by its real path, and last the path without links, as far as it exists.
fn on_the_way(path: &Path) -> Vec<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut places = vec![path.clone()];
    let mut left: Vec<_> = path.iter().rev().map(OsStr::to_owned).collect();
    let mut real = PathBuf::new();
    while let Some(name) = left.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        // An absolute target starts again at the root.
        let next = real.join(name);
        match std::fs::read_link(&next) {
            Ok(target) if places.len() <= MOST_LINKS => {
                places.push(next);
                left.extend(target.iter().rev().map(OsStr::to_owned));
            }
            _ => real = next,
        }
    }
    places.push(real);
    places
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
        symlink("work/to-logs", at("one")).unwrap();
        symlink("two", at("three")).unwrap();
        symlink("one", at("two")).unwrap();
        let workspace = |path: &str| at(path);
        for (file, work) in [
            ("work/audit", "work"),
            ("work/deep/audit", "work"),
            ("to-work/audit", "work"),
            ("work/audit", "alias"),
            // The sandbox can't write to the log's directory, but say which one it is.
            ("work/to-logs/audit", "work"),
            // It can change a link on the way.
            ("one/audit", "work"),
            ("three/audit", "work"),
            ("logs/box-1/audit", "logs/{id}"),
            ("logs/box-1/w/audit", "logs/{id}/w"),
        ] {
            let refused = refusal(&at(file), &[("local.workspace", &workspace(work), "")]);
            let refused = refused.unwrap_or_else(|| panic!("{file} in {work}"));
            assert!(refused.contains("in the workspace") && refused.contains("settings: audit.file"), "{refused}");
            assert!(!at(file).exists());
        }
        // Where it can only be seen, it can be locked.
        for access in [":/m:rw", ":/m:ro"] {
            for (file, mount) in [("mount/audit", "mount"), ("to-work/audit", "work"), ("mount/audit", "mount/audit")] {
                let refused = refusal(&at(file), &[("local.mounts", &at(mount), access)]);
                assert!(refused.is_some_and(|refused| refused.contains("in the mount")), "{file} {mount}{access}");
            }
        }
        let programs = refusal(Path::new("/usr/audit"), &[]).unwrap();
        assert!(programs.contains("a directory that all sandboxes see, /usr;"), "{programs}");
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
        assert!(refusal(&file, &[("local.mounts", &file, ":/audit:rw")]).unwrap().contains("the mount"));
        assert!(is_below(Path::new("/x"), Path::new("/")));
    }

    /// It was said that an empty path can't be made absolute.
    #[test]
    fn an_empty_name_is_refused() {
        let mut config = Config::default();
        config.set(FILE, "").unwrap();
        assert_eq!(config.audit().unwrap_err().to_string(), "settings: audit.file: it is empty; name a file");
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
