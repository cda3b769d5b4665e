//! What the MCP server adds to a command: `run` by `podbay mcp` over standard input and output beside the same command by the
//! Rust client, in neighbouring pairs.
#![allow(clippy::unwrap_used, missing_docs, reason = "this is a benchmark")]

#[path = "../../client/benches/measure/mod.rs"]
mod measure;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use measure::{Samples, Table, show};

const ROUNDS: usize = 300;

/// A client of `podbay mcp`, without an SDK's own time.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
}

impl Server {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_podbay"))
            .arg("mcp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut server = Self { child, input, output, last: 0 };
        let client = json!({"name": "bench", "version": "1"});
        server.ask("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}));
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn send(&mut self, message: &Value) {
        self.input.write_all(format!("{message}\n").as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server ended");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                return answer["result"].clone();
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        assert_eq!(result["isError"], false, "{result}");
        result
    }

    fn end(self) {
        let Self { mut child, input, .. } = self;
        drop(input);
        assert!(child.wait().unwrap().success());
    }
}

#[tokio::main]
async fn main() {
    let sandbox = podbay::Podbay::local().unwrap().create().await.unwrap();
    let mut server = Server::start();
    sandbox.write("file", "line of text\n".repeat(300)).await.unwrap();
    server.call("write", json!({"path": "file", "content": "line of text\n".repeat(300)}));

    let table = Table::times("One call");
    let figures = |heading: &str| Table::figures(heading);
    let (mut own, mut by_mcp, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS + 20 {
        let begun = Instant::now();
        assert!(sandbox.run("true").await.unwrap().success());
        let ours = begun.elapsed();
        let begun = Instant::now();
        server.call("run", json!({"command": "true"}));
        let theirs = begun.elapsed();
        // The first rounds don't count.
        if round >= 20 {
            own.push(ours);
            by_mcp.push(theirs);
            added.push(theirs.saturating_sub(ours));
        }
    }
    table.row("baseline: `true` by the Rust client", &own.into());
    table.row("**`run` of `true` by `podbay mcp`, over standard input and output**", &by_mcp.into());
    let (mut own, mut by_mcp) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        drop(sandbox.read("file").await.unwrap());
        own.push(begun.elapsed());
        let begun = Instant::now();
        server.call("read", json!({"path": "file"}));
        by_mcp.push(begun.elapsed());
    }
    table.row("baseline: read 4 KB by the Rust client", &own.into());
    table.row("**`read` of 4 KB by `podbay mcp`**", &by_mcp.into());
    let added: Samples = added.into();
    figures("What MCP adds").figure("to `run`, median of neighbouring pairs (at most 1 ms)", show(added.p50()));
    server.end();
}
