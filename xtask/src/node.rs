//! The npm package: its dependencies, its checks, its build, its tests.

mod cluster;

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use rig::{Cache, Cluster};

use crate::reference;
use crate::summary::Part;
use crate::tools::{root, run, run_tests};

/// Versions of Node beside the one that runs the tests, which is the oldest.
const NODES: [&str; 2] = ["node@22.23.3", "node@24.9.0"];

/// The package's directory.
fn package() -> PathBuf {
    root().join("node")
}

/// A program, run in the package's directory.
fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.current_dir(package()).env("NO_COLOR", "1");
    command
}

/// A script of a dependency.
fn script(path: &str) -> Command {
    let mut command = program("node");
    command.arg(package().join("node_modules").join(path));
    command
}

/// Installs what the lock file says into the package's directory.
pub fn install() -> Result<()> {
    run(&mut npm_install())
}

/// Installs what a lock file says.
fn npm_install() -> Command {
    let mut npm = program("npm");
    // Not `npm ci`: that insists on lock entries for the binaries of all platforms, which not every registry has. And no
    // scripts: the package's own would build it with the release profile.
    npm.args(["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund"]);
    npm
}

/// Installs what the package needs, and builds it with a profile of cargo's.
fn build(profile: &str) -> Result<()> {
    install()?;
    run(program("node").args(["scripts/build.mjs", "--profile", profile]))
}

/// The same for tests, once for all parts of a run.
pub fn built() -> Result<()> {
    static IS_BUILT: Mutex<bool> = Mutex::new(false);
    let mut is_built = IS_BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_built {
        build("dev")?;
        *is_built = true;
    }
    Ok(())
}

/// What prints the API reference.
pub fn reference_generator() -> Command {
    let mut generator = program("node");
    generator.arg("scripts/reference.mjs");
    generator
}

/// What measures the package beside Deep Agents' own scripts: it needs a KUBECONFIG.
pub fn bench() -> Result<Command> {
    build("release")?;
    run(script("typescript/bin/tsc").args(["--project", "tsconfig.benches.json"]))?;
    let mut bench = program("node");
    bench.arg("benches/out/operations.js");
    Ok(bench)
}

/// Style, types and tests; with a cluster also the tests that need one.
pub fn test(cluster: Option<&Cluster>, results: &mut Part) {
    if let Err(error) = built() {
        // Without the package there is nothing to test.
        return results.fail(format!("the package: {error:#}"));
    }
    results.check("biome", run(script("@biomejs/biome/bin/biome").args(["check", "."])));
    results.check("tsc", run(script("typescript/bin/tsc").arg("--noEmit")));
    results.check("docs/reference/typescript.md", reference::check_node());
    let mut vitest = script("vitest/vitest.mjs");
    vitest.arg("run");
    if let Err(error) = others(&mut vitest) {
        return results.fail(format!("the tests' other dependencies: {error:#}"));
    }
    // It ends when this function does.
    let access = match cluster.map(cluster::Access::new).transpose() {
        Ok(access) => access,
        Err(error) => return results.fail(format!("no account on the test cluster: {error:#}")),
    };
    if let Some(access) = &access {
        access.tell(&mut vitest);
    }
    let (heard, outcome) = run_tests(&mut vitest);
    results.add(heard, outcome);
}

/// Installs other versions of Node and LangGraph's development server, and tells the tests where they are.
fn others(vitest: &mut Command) -> Result<()> {
    let langgraph = package().join("tests/langgraph/cli");
    // Its packages disagree about the versions of their peers; the lock file has ones that work together.
    run(npm_install().arg("--legacy-peer-deps").current_dir(&langgraph))?;
    vitest.env("TEST_LANGGRAPH_CLI", langgraph.join("node_modules/.bin/langgraphjs"));
    let nodes = NODES.iter().map(|node| Ok(installed(node)?.join("node"))).collect::<Result<Vec<_>>>()?;
    vitest.env("TEST_NODES", std::env::join_paths(nodes)?);
    Ok(())
}

/// The programs of a package in the cache.
fn installed(package: &str) -> Result<PathBuf> {
    let folder = Cache::place()?.join("node").join(package.trim_start_matches('@').replace('/', "-"));
    let note = folder.join("complete");
    if !note.exists() {
        std::fs::create_dir_all(&folder)?;
        run(Command::new("npm").args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).arg(package))?;
        std::fs::write(&note, "")?;
    }
    Ok(folder.join("node_modules/.bin"))
}
