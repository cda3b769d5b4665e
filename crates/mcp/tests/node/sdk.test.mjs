// The official TypeScript SDK as a client, over both transports.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const podbay = process.env.MCP_PODBAY ?? new URL("../../../../target/debug/podbay", import.meta.url).pathname;
const meta = "podbay.dev/result";

const home = mkdtempSync("/tmp/pb-");
const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("PODBAY_"));
const env = { ...Object.fromEntries(kept), PODBAY_HOME: home, XDG_CONFIG_HOME: `${home}/config` };

after(async () => {
  // Sandboxes end within moments of their session.
  for (let round = 0; round < 100 && running().length > 0; round += 1) await sleep(100);
  const left = running();
  rmSync(home, { recursive: true, force: true });
  assert.deepEqual(left, []);
});

function running() {
  const listed = JSON.parse(execFileSync(podbay, ["--json", "list"], { env, encoding: "utf8" }));
  const sandboxes = Array.isArray(listed) ? listed : listed.sandboxes;
  return sandboxes.filter((sandbox) => (sandbox.phase ?? "running") === "running");
}

const text = (result) => result.content.filter((block) => block.type === "text").map((block) => block.text).join("\n");

function transports() {
  let server;
  let url;
  return {
    stdio: {
      open: async () => new StdioClientTransport({ command: podbay, args: ["mcp"], env, stderr: "ignore" }),
      start: async () => {},
      stop: async () => {},
    },
    http: {
      open: async () => new StreamableHTTPClientTransport(new URL(url)),
      start: async () => {
        server = spawn(podbay, ["mcp", "--listen", "127.0.0.1:0"], { env, stdio: ["ignore", "ignore", "pipe"] });
        for await (const line of createInterface({ input: server.stderr })) {
          url = line.match(/http:\S+/)?.[0];
          if (url) break;
        }
      },
      stop: async () => {
        server.kill("SIGTERM");
        await new Promise((ended) => server.once("exit", ended));
      },
    },
  };
}

for (const [name, transport] of Object.entries(transports())) {
  describe(name, () => {
    before(transport.start);
    after(transport.stop);

    async function connected(work) {
      const client = new Client({ name: "test", version: "1" });
      const wire = await transport.open();
      await client.connect(wire);
      try {
        return await work(client);
      } finally {
        await wire.terminateSession?.();
        await client.close();
      }
    }

    test("every tool", () =>
      connected(async (client) => {
        const call = async (tool, args = {}) => {
          const result = await client.callTool({ name: tool, arguments: args });
          assert.ok(!result.isError, text(result));
          return text(result);
        };
        const { tools } = await client.listTools();
        assert.equal(tools.length, 11);
        assert.equal(await call("write", { path: "a.txt", content: "one\n" }), "created /workspace/a.txt (4 bytes)");
        assert.equal(await call("read", { path: "a.txt" }), "one");
        assert.match(await call("edit", { path: "a.txt", old_string: "one", new_string: "two" }), /replaced once/);
        assert.equal(await call("run", { command: "cat a.txt" }), "two\n\n[exit code 0]");
        assert.match(await call("ls"), /a\.txt \(4 bytes\)/);
        assert.match(await call("glob", { pattern: "*.txt" }), /a\.txt/);
        assert.match(await call("grep", { pattern: "tw" }), /a\.txt:1:two/);
        await call("upload", { path: "b", content_base64: "AP8=" });
        const started = await client.callTool({ name: "run", arguments: { command: "echo up; sleep 60", background: true } });
        const id = started._meta[meta].id;
        assert.match(await call("process_list"), new RegExp(id));
        assert.match(await call("process_output", { id, wait_seconds: 20 }), /^up\n/);
        assert.match(await call("process_kill", { id }), /sent to/);
      }));

    test("resources", () =>
      connected(async (client) => {
        const result = await client.callTool({ name: "run", arguments: { command: "seq 1 50000" } });
        const link = result.content.find((block) => block.type === "resource_link");
        const { contents } = await client.readResource({ uri: link.uri });
        assert.equal(contents[0].text, Array.from({ length: 50000 }, (_, index) => `${index + 1}\n`).join(""));
        assert.ok((await client.listResources()).resources.some((resource) => resource.uri === link.uri));
        await assert.rejects(client.readResource({ uri: "podbay://file/none" }), /none/);
      }));

    test("progress and cancellation", () =>
      connected(async (client) => {
        const heard = [];
        const request = { name: "run", arguments: { command: "for i in 1 2 3; do echo step $i; sleep 0.7; done" } };
        await client.callTool(request, undefined, { onprogress: (progress) => heard.push(progress) });
        assert.ok(heard.some(({ message }) => /step/.test(message)), JSON.stringify(heard));
        const stop = new AbortController();
        const long = { name: "run", arguments: { command: "sleep 300" } };
        const running = client.callTool(long, undefined, { signal: stop.signal });
        await sleep(1000);
        stop.abort();
        await assert.rejects(running);
        for (let round = 0; ; round += 1) {
          const listed = text(await client.callTool({ name: "process_list", arguments: {} }));
          if (listed === "[nothing is running]") break;
          assert.ok(round < 100, listed);
          await sleep(100);
        }
      }));

    test("two sessions at once", () =>
      connected((one) =>
        connected(async (two) => {
          await one.callTool({ name: "write", arguments: { path: "mine", content: "1" } });
          const other = await two.callTool({ name: "read", arguments: { path: "mine" } });
          assert.ok(other.isError);
        }),
      ));

    test("unknown tools", () =>
      connected(async (client) => {
        await assert.rejects(client.callTool({ name: "none", arguments: {} }), /there is no tool/);
      }));
  });
}
