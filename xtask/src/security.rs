//! `cargo xtask security-tests`: every attack of the table, and the document with the results.

use anyhow::Result;

use crate::tools::{self, cargo, root, say};

/// Runs the attacks that can run here. Pods are among them where a cluster can be had.
pub fn run() -> Result<()> {
    let mut test = cargo();
    test.args(["test", "--package", "podbay", "--test", "escapes", "--", "--report"]);
    test.arg(root().join("docs/security-tests.md"));
    match rig::available() {
        Ok(()) => {
            test.env("PODBAY_RIG", "1");
        }
        Err(reason) => say(&format!("attacks in pods are left out: {reason}")),
    }
    tools::run(&mut test)
}
