//! Files that are generated from the code and checked in.

mod bindings;
mod python;

use anyhow::Result;

use crate::tools::{cargo, run};

/// Writes them again. Their tests know how, and compare them otherwise.
pub fn all() -> Result<()> {
    let tests = [
        ("podbay", "config::generated", &[][..]),
        ("podbay-proto", "schema::typescript", &["--features", "schema"]),
        ("rig", "the_dockerfiles", &[]),
    ];
    for (package, test, features) in tests {
        let mut command = cargo();
        command.args(["test", "--quiet", "--package", package, "--lib"]).args(features).arg(test);
        run(command.env("PODBAY_RECORD", "1"))?;
    }
    // After the dataclasses, whose names it exports.
    python::write()
}
