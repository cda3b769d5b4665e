//! `cargo xtask reference`: generates reference pages in docs/reference.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::python::{self, Environment};
use crate::tools::{root, say};

#[derive(Clone, Copy, ValueEnum)]
pub enum Page {
    /// docs/reference/python.md
    Python,
}

/// Generates a page and writes it.
pub fn run(page: Page) -> Result<()> {
    let Page::Python = page;
    let (environment, _) = python::installed()?;
    let page = python_page();
    std::fs::write(&page, python_reference(&environment)?)
        .with_context(|| format!("can't write {}", page.display()))?;
    say(&format!("wrote {}", page.display()));
    Ok(())
}

/// Checks that the Python reference matches the installed package.
pub fn check_python(environment: &Environment) -> Result<()> {
    let page = python_page();
    let written = std::fs::read_to_string(&page).with_context(|| format!("can't read {}", page.display()))?;
    if written != python_reference(environment)? {
        bail!("docs/reference/python.md is out of date: run 'cargo xtask reference python'");
    }
    Ok(())
}

/// The generator, which imports the package.
pub fn python_generator() -> PathBuf {
    root().join("xtask/src/reference/python.py")
}

fn python_page() -> PathBuf {
    root().join("docs/reference/python.md")
}

fn python_reference(environment: &Environment) -> Result<String> {
    let mut generator = environment.program("python");
    // Isolated, so that it imports the installed package and not the source tree.
    let output = generator.arg("-I").arg(python_generator()).output().context("can't run the generator")?;
    if !output.status.success() {
        bail!("the generator failed: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).context("the generated page isn't UTF-8")
}
