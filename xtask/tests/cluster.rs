//! `cargo xtask cluster`.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::process::Command;

/// `cluster up` took the default cluster whatever PODBAY_RIG_NAME said, while the tests used the one it names.
#[test]
fn the_environment_names_the_cluster_unless_a_flag_does() {
    let asked = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["cluster", "env"])
            .args(words)
            .env("PODBAY_RIG_NAME", "from-env")
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(asked(&[]).contains("cluster from-env isn't up"));
    assert!(asked(&["--name", "by-flag"]).contains("cluster by-flag isn't up"));
}
