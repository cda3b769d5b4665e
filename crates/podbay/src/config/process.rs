//! The settings of a process: from files, the environment and the working directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Config, ConfigError, FILE, file};

impl Config {
    /// The settings of this process: the user's own file or the one that `PODBAY_CONFIG` names, `podbay.toml` in the
    /// working directory, and the environment.
    ///
    /// # Errors
    /// When a setting is unknown or invalid, or a file can't be read or isn't safe to use.
    pub fn of_process() -> Result<Self, ConfigError> {
        Self::of_process_with(None)
    }

    /// The settings of this process, with this file instead of all others.
    ///
    /// # Errors
    /// When a setting is unknown or invalid, or a file can't be read or isn't safe to use.
    pub fn of_process_with(named: Option<&Path>) -> Result<Self, ConfigError> {
        Self::of_variables(named, &std::env::vars_os().collect::<Vec<_>>(), Path::new(""))
    }

    /// The settings of a process that has these variables and works in this directory.
    ///
    /// # Errors
    /// When a setting is unknown or invalid, or a file can't be read or isn't safe to use.
    pub fn of_variables(
        named: Option<&Path>,
        variables: &[(OsString, OsString)],
        directory: &Path,
    ) -> Result<Self, ConfigError> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
        };
        let mut config = Self::default();
        let named = match (named, variable("PODBAY_CONFIG").map(PathBuf::from)) {
            (Some(file), _) => Some(file.to_owned()),
            (None, Some(path)) if path.is_relative() => {
                let reason = "PODBAY_CONFIG has to be an absolute path: a relative one would give full power to a \
                              file in the current directory";
                return Err(ConfigError::File { path, reason: reason.into() });
            }
            (None, path) => path,
        };
        let own = file::of_user(variable).filter(|_| named.is_none());
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |reason: String| ConfigError::File { path, reason }
        };
        if let Some(path) = &named {
            config.read_file(path)?;
        }
        if let Some(path) = &own
            && let Some(text) = file::read_own(path).map_err(failed(path))?
        {
            config.read_toml(&text, &path.display().to_string())?;
        }
        // A value that isn't UTF-8 can't be valid; the name shows whether it was meant as a setting.
        config.read_environment(
            variables
                .iter()
                .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.to_string_lossy().into_owned()))),
        )?;
        let found = directory.join(FILE);
        // In the directory of the user's own file, that file has been read already.
        let again = own.is_some_and(|own| std::fs::canonicalize(own).ok() == std::fs::canonicalize(&found).ok());
        if named.is_none()
            && !again
            && let Some(text) = file::read_found(&found).map_err(failed(Path::new(FILE)))?
        {
            config.read_project_toml(&text, FILE)?;
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user's home and working directory.
    struct User(tempfile::TempDir);

    impl User {
        fn new() -> Self {
            let user = Self(tempfile::tempdir().unwrap());
            for dir in ["home/.config/podbay", "work"] {
                std::fs::create_dir_all(user.0.path().join(dir)).unwrap();
            }
            user
        }

        fn file(&self, path: &str, text: &str) -> PathBuf {
            let path = self.0.path().join(path);
            std::fs::write(&path, text).unwrap();
            path
        }

        fn read(&self, named: Option<&Path>, more: &[(&str, &str)]) -> Result<Config, ConfigError> {
            let home = self.0.path().join("home").into_os_string();
            let more = more.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
            let variables: Vec<_> = [("HOME".into(), home)].into_iter().chain(more).collect();
            Config::of_variables(named, &variables, &self.0.path().join("work"))
        }
    }

    #[test]
    fn the_users_own_file_has_full_power_and_a_found_one_has_not() {
        let user = User::new();
        let own = user.file("home/.config/podbay/podbay.toml", "ttl = \"2h\"\n[local]\nnetwork = \"host\"\n");
        user.file("work/podbay.toml", "ttl = \"1h\"\n");
        let config = user.read(None, &[]).unwrap();
        let entries: Vec<_> = config.entries().map(|entry| (entry.key, entry.from, entry.power)).collect();
        let own = own.display().to_string();
        assert_eq!(entries, [("ttl", FILE.into(), "may only narrow"), ("local.network", own, "full")]);
        assert_eq!(config.ttl().unwrap().as_secs(), 3600);
        // The environment beats both.
        assert_eq!(user.read(None, &[("PODBAY_TTL", "5h")]).unwrap().ttl().unwrap().as_secs(), 5 * 3600);
        user.file("work/podbay.toml", "[local]\nnetwork = \"host\"\n");
        let error = user.read(None, &[]).unwrap_err().to_string();
        assert!(error.starts_with("podbay.toml: local.network: a file in the project can't set this"), "{error}");
    }

    #[test]
    fn a_file_that_is_named_takes_the_place_of_both() {
        let user = User::new();
        user.file("home/.config/podbay/podbay.toml", "ttl = \"2h\"\n");
        let found = user.file("work/podbay.toml", "[local]\nnetwork = \"host\"\n");
        for config in [
            user.read(Some(&found), &[]).unwrap(),
            user.read(None, &[("PODBAY_CONFIG", found.to_str().unwrap())]).unwrap(),
        ] {
            assert_eq!((config.ttl(), config.text("local.network")), (None, Some("host")));
        }
    }

    /// PODBAY_CONFIG=podbay.toml in somebody's profile would bring back what the project's file lost.
    #[test]
    fn a_relative_path_in_the_environment_gives_no_power() {
        let user = User::new();
        user.file("work/podbay.toml", "mode = \"raw\"\n");
        let error = user.read(None, &[("PODBAY_CONFIG", "podbay.toml")]).unwrap_err().to_string();
        assert!(error.contains("absolute"), "{error}");
        assert!(user.read(None, &[("PODBAY_CONFIG", ""), ("XDG_CONFIG_HOME", "work")]).is_err());
    }

    #[test]
    fn whoever_works_beside_their_own_file_keeps_its_power() {
        let user = User::new();
        user.file("home/.config/podbay/podbay.toml", "mode = \"raw\"\n");
        std::fs::remove_dir(user.0.path().join("work")).unwrap();
        std::os::unix::fs::symlink("home/.config/podbay", user.0.path().join("work")).unwrap();
        assert_eq!(user.read(None, &[]).unwrap().mode(), "raw");
    }
}
