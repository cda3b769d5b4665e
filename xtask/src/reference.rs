//! `cargo xtask reference`: generates reference pages in docs/reference.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::python::Environment;
use crate::tools::{root, say};
use crate::{node, python};

#[derive(Clone, Copy, ValueEnum)]
pub enum Page {
    /// docs/reference/python.md
    Python,
    /// docs/reference/typescript.md
    Node,
}

impl Page {
    fn path(self) -> &'static str {
        match self {
            Self::Python => "docs/reference/python.md",
            Self::Node => "docs/reference/typescript.md",
        }
    }
}

/// Generates a page and writes it.
pub fn run(page: Page) -> Result<()> {
    let mut generator = match page {
        Page::Python => python_reference(&python::installed()?.0),
        Page::Node => {
            node::install()?;
            node::reference_generator()
        }
    };
    let path = page.path();
    std::fs::write(root().join(path), generated(&mut generator)?).with_context(|| format!("can't write {path}"))?;
    say(&format!("wrote {path}"));
    Ok(())
}

/// Checks that the Python reference matches the installed package.
pub fn check_python(environment: &Environment) -> Result<()> {
    check(Page::Python, &mut python_reference(environment))
}

/// Checks that the TypeScript reference matches the package's sources. Its dependencies have to be installed.
pub fn check_node() -> Result<()> {
    check(Page::Node, &mut node::reference_generator())
}

fn check(page: Page, generator: &mut Command) -> Result<()> {
    let path = page.path();
    let written = std::fs::read_to_string(root().join(path)).with_context(|| format!("can't read {path}"))?;
    if written != generated(generator)? {
        let name = page.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        bail!("{path} is out of date: run 'cargo xtask reference {name}'");
    }
    Ok(())
}

/// The generator, which imports the package.
pub fn python_generator() -> PathBuf {
    root().join("xtask/src/reference/python.py")
}

fn python_reference(environment: &Environment) -> Command {
    let mut generator = environment.program("python");
    // Isolated, so that it imports the installed package and not the source tree.
    generator.arg("-I").arg(python_generator());
    generator
}

fn generated(generator: &mut Command) -> Result<String> {
    let output = generator.output().context("can't run the generator")?;
    if !output.status.success() {
        bail!("the generator failed: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).context("the generated page isn't UTF-8")
}
