//! The MCP server's clients: the official SDKs, LangChain's adapters, the Inspector.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rig::Cache;
use serde_json::Value;

use crate::programs::command_line;
use crate::python::{Environment, run_pytest};
use crate::summary::Part;
use crate::tools::{root, run, target_dir};

/// The official Python SDK.
const SDK: [&str; 2] = ["mcp==2.3.0", "pytest==9.2.0"];

/// LangChain's adapters, which need an older SDK.
const LANGCHAIN: [&str; 4] = ["deepagents==0.7.32", "langchain-mcp-adapters==0.3.1", "mcp==1.30.0", "pytest==9.2.0"];

/// A Node.js that the Inspector supports, and the Inspector.
const INSPECTOR: [&str; 2] = ["node@26.10.0", "@modelcontextprotocol/inspector@2.12.0"];

fn tests() -> PathBuf {
    root().join("crates/mcp/tests")
}

/// Builds the program and lets every client talk to it.
pub fn test(results: &mut Part) {
    if !results.check("the build of podbay", command_line().map(drop)) {
        return;
    }
    for (environment, packages, folder) in
        [("podbay-mcp", &SDK[..], "python"), ("podbay-mcp-langchain", &LANGCHAIN[..], "langchain")]
    {
        match pytest(environment, packages, folder) {
            Ok(mut pytest) => run_pytest(&mut pytest, results),
            Err(error) => results.fail(format!("{folder}: {error:#}")),
        }
    }
    results.check("the TypeScript SDK", node());
    results.check("the Inspector", inspector());
}

fn with_program(command: &mut Command) -> &mut Command {
    command.env("MCP_PODBAY", target_dir().join("debug/podbay"))
}

fn pytest(environment: &str, packages: &[&str], folder: &str) -> Result<Command> {
    let mut pytest = Environment::with(environment, packages)?.program("pytest");
    with_program(pytest.current_dir(tests().join(folder))).arg("-q");
    Ok(pytest)
}

/// The TypeScript SDK's tests, with exactly the packages of the lock file.
fn node() -> Result<()> {
    let folder = tests().join("node");
    run(Command::new("npm").args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&folder))?;
    run(with_program(Command::new("npm").arg("test").current_dir(&folder)))
}

/// The Inspector's command line, which checks every answer against the protocol's schema.
fn inspector() -> Result<()> {
    let folder = Cache::place()?.join("node").join("mcp-inspector");
    let ready = folder.join("node_modules/.bin/mcp-inspector");
    if !ready.exists() {
        std::fs::create_dir_all(&folder)?;
        run(Command::new("npm").args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).args(INSPECTOR))?;
    }
    let inspect = |arguments: &[&str]| said(&mut inspecting(&folder, arguments));
    let tools = inspect(&["--method", "tools/list"])?;
    let named =
        |name: &str| tools["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == name));
    ensure!(["run", "read", "write"].into_iter().all(named), "tools are missing: {tools}");
    let templates = inspect(&["--method", "resources/templates/list"])?;
    ensure!(templates["resourceTemplates"][0]["name"] == "file", "templates are missing: {templates}");
    let ran = inspect(&["--method", "tools/call", "--tool-name", "run", "--tool-arg", "command=echo hello"])?;
    ensure!(ran["content"][0]["text"] == "hello\n", "not what the command printed: {ran}");
    Ok(())
}

/// What a command printed, as JSON. Only a failure is shown.
fn said(command: &mut Command) -> Result<Value> {
    let output = command.output()?;
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{:?} failed ({}): {printed}{errors}", command.get_args(), output.status);
    serde_json::from_str(&printed).with_context(|| format!("not JSON: {printed}"))
}

fn inspecting(folder: &Path, arguments: &[&str]) -> Command {
    let bin = folder.join("node_modules/.bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(bin.clone()).chain(std::env::split_paths(&path)));
    let mut command = Command::new(bin.join("mcp-inspector"));
    command.arg("--cli").arg(target_dir().join("debug/podbay")).arg("mcp").args(arguments);
    if let Ok(path) = path {
        command.env("PATH", path);
    }
    command
}
