/**
 * The real `langgraph dev`, with the example's agent. `cargo xtask test node` installs it from the lock file in `cli` and
 * names its program.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { openSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Podbay, sandboxId } from "podbay";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const cli = process.env["TEST_LANGGRAPH_CLI"];
const tests = dirname(dirname(fileURLToPath(import.meta.url)));
const tenant = `dev-${process.pid}`;

/** The example's agent, with a model that runs a command of each message. */
const AGENT = `
import { agent } from "../../examples/langgraph/agent.ts";
import { ScriptedModel } from "../scripted.ts";

const execute = (command: string) => [{ name: "execute", args: { command } }];
const model = new ScriptedModel([execute("echo first > kept"), "done", execute("cat kept"), "done"]);
export const graph = agent(model);
`;

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  return typeof address === "object" && address !== null ? address.port : 0;
}

interface Message {
  content: string;
}

describe.skipIf(cli === undefined)("langgraph dev", () => {
  let directory: string;
  let server: ChildProcess;
  let url: string;
  const log = () => readFile(join(directory, "log"), "utf8");

  beforeAll(async () => {
    // Below the package, so that programs find it by its name.
    directory = await mkdtemp(join(tests, "tmp-"));
    await writeFile(join(directory, "agent.ts"), AGENT);
    const config = await readFile(join(tests, "..", "examples", "langgraph", "langgraph.json"), "utf8");
    await writeFile(join(directory, "langgraph.json"), config);
    const port = await freePort();
    url = `http://127.0.0.1:${port}`;
    const output = openSync(join(directory, "log"), "w");
    server = spawn(cli ?? "", ["dev", "--no-browser", "--host", "127.0.0.1", "--port", String(port)], {
      cwd: directory,
      env: { ...process.env, TENANT: tenant, LANGSMITH_TRACING: "false", LANGGRAPH_CLI_NO_ANALYTICS: "1" },
      stdio: ["ignore", output, output],
      // A group of its own: the program starts others.
      detached: true,
    });
    for (let tries = 0; !(await answers(`${url}/ok`)); tries++) {
      expect(tries < 600 && server.exitCode === null, await log()).toBe(true);
      await setTimeout(100);
    }
  }, 90_000);
  afterAll(async () => {
    if (server?.pid !== undefined && server.exitCode === null) {
      process.kill(-server.pid, "SIGTERM");
      await Promise.race([once(server, "exit"), setTimeout(10_000)]);
    }
    await rm(directory, { recursive: true });
  }, 30_000);

  async function answers(address: string): Promise<boolean> {
    return fetch(address).then(
      (response) => response.ok,
      () => false,
    );
  }

  async function post(path: string, body: unknown): Promise<Record<string, unknown>> {
    const headers = { "content-type": "application/json" };
    const response = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
    expect(response.ok, await log()).toBe(true);
    return (await response.json()) as Record<string, unknown>;
  }

  it("keeps a thread's sandbox from run to run", async () => {
    const thread = String((await post("/threads", {}))["thread_id"]);
    const turn = () =>
      post(`/threads/${thread}/runs/wait`, {
        assistant_id: "agent",
        input: { messages: [{ role: "user", content: "go" }] },
      });
    try {
      await turn();
      const state = await turn();
      const messages = state["messages"] as Message[];
      expect(messages.at(-2)?.content, await log()).toMatch(/^first\n/);
      expect(state["sandboxId"]).toBe(sandboxId(tenant, thread));
    } finally {
      expect(await new Podbay().delete(sandboxId(tenant, thread))).toBe(true);
    }
  }, 60_000);
});
