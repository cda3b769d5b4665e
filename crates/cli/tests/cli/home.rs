//! A home of a test's own, and the `podbay` command in it.

use std::process::{Command, Output, Stdio};

/// A directory for sandboxes that ends with the test, and they with it.
pub struct Home(tempfile::TempDir);

impl Home {
    pub fn new() -> Self {
        // Sockets have short paths.
        Self(tempfile::Builder::new().prefix("pb").tempdir_in("/tmp").unwrap())
    }

    pub fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    pub fn podbay(&self, words: &[&str]) -> Command {
        let mut command = podbay();
        command.args(words).env("PODBAY_HOME", self.path()).stdin(Stdio::null());
        // Whoever runs the tests may have settings of their own.
        command.env("XDG_CONFIG_HOME", self.path().join("config"));
        command
    }

    /// Writes the user's own settings.
    pub fn settings(&self, text: &str) {
        let directory = self.path().join("config/podbay");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("podbay.toml"), text).unwrap();
    }

    pub fn output(&self, words: &[&str]) -> Output {
        self.podbay(words).output().unwrap()
    }

    /// Whether nothing is left of any sandbox.
    pub fn is_empty(&self) -> bool {
        ["sandboxes", "new"].iter().all(|dir| std::fs::read_dir(self.path().join(dir)).unwrap().next().is_none())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let deleted = self.output(&["delete", "--all"]);
        if !deleted.status.success() && !std::thread::panicking() {
            panic!("{}", String::from_utf8_lossy(&deleted.stderr));
        }
    }
}

/// The command. It heeds all signals, also where these tests run as a background job, which ignores interrupts and hands
/// that on.
pub fn podbay() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_podbay")]);
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
