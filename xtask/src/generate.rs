//! Files that are generated from the code and checked in.

use anyhow::Result;

use crate::tools::{cargo, run};

/// Writes them again. Their tests know how, and compare them otherwise.
pub fn all() -> Result<()> {
    run(cargo()
        .args(["test", "--quiet", "--package", "podbay", "--lib", "config::generated"])
        .env("PODBAY_RECORD", "1"))
}
