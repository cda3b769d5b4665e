/** A sandbox for each thread of a LangGraph application, and a sandbox as a tool. */

import { Annotation, END, MemorySaver, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { createDeepAgent } from "deepagents";
import { ConfigError, Podbay } from "podbay";
import { MissingThread } from "podbay/deepagents";
import { executePythonTool, SandboxManager, seedFiles } from "podbay/langgraph";
import { afterEach, describe, expect, it } from "vitest";
import { content, ScriptedModel, type Step } from "../scripted.js";

const write: Step = [{ name: "write_file", args: { file_path: "/workspace/x", content: "kept" } }];
const read: Step = [{ name: "execute", args: { command: "cat x" } }];
const ask = { messages: [{ role: "user", content: "go" }] };
const thread = (id: string) => ({ configurable: { thread_id: id } });

describe("a manager", () => {
  let manager: SandboxManager;
  afterEach(() => manager.shutdown());

  it("gives each thread a sandbox that survives turns and other managers", async () => {
    const tenant = `tenant-${process.pid}`;
    manager = new SandboxManager({ tenant, ttl: "5m" });
    const checkpointer = new MemorySaver();
    const agent = manager.createAgent(new ScriptedModel([write, "done", read, "done"]), { checkpointer });
    const first = (await agent.invoke(ask, thread("one"))) as Record<string, unknown>;
    expect(first["sandboxId"]).toBe(manager.sandboxId("one"));
    const second = await agent.invoke(ask, thread("one"));
    expect(content(second.messages.at(-2))).toMatch(/^kept/);
    const replica = new SandboxManager({ tenant });
    const other = await replica.createAgent(new ScriptedModel([read, "done"])).invoke(ask, thread("one"));
    expect(content(other.messages.at(-2))).toMatch(/^kept/);
    const apart = await manager.createAgent(new ScriptedModel([read, "done"])).invoke(ask, thread("two"));
    expect(content(apart.messages.at(-2))).toContain("exit code 1");
    expect((await manager.shutdown()).toSorted()).toEqual(
      [manager.sandboxId("one"), manager.sandboxId("two")].toSorted(),
    );
    expect(await replica.shutdown()).toEqual([]);
  });

  it("doesn't let input choose a sandbox", async () => {
    manager = new SandboxManager({ tenant: `input-${process.pid}`, ttl: "5m" });
    const agent = manager.createAgent(new ScriptedModel(["done"]));
    const input = { ...ask, sandboxId: "pb-somebody-elses" };
    const result = (await agent.invoke(input, thread("mine"))) as Record<string, unknown>;
    expect(result["sandboxId"]).toBe(manager.sandboxId("mine"));
  });

  it("replaces a sandbox that ended between turns", async () => {
    manager = new SandboxManager({ tenant: `ended-${process.pid}`, ttl: "5m" });
    const agent = manager.createAgent(new ScriptedModel([write, "done", read, "done"]));
    await agent.invoke(ask, thread("one"));
    await manager.provider.delete(manager.sandboxId("one"));
    const { messages } = await agent.invoke(ask, thread("one"));
    expect(content(messages.at(-2))).toContain("exit code 1");
  });

  it("has nodes for graphs", async () => {
    manager = new SandboxManager({ tenant: `nodes-${process.pid}`, ttl: "5m" });
    const State = Annotation.Root({ ...MessagesAnnotation.spec, box: Annotation<string | undefined> });
    const options = { stateSandboxKey: "box" };
    const graph = new StateGraph(State)
      .addNode("setup", manager.createSetupNode(options))
      .addNode("agent", manager.createAgentNode(new ScriptedModel([write, "done"]), options))
      .addEdge(START, "setup")
      .addEdge("setup", "agent")
      .addEdge("agent", END)
      .compile();
    const result = await graph.invoke(ask, thread("one"));
    expect(result.box).toBe(manager.sandboxId("one"));
    expect(content(result.messages.at(-1))).toBe("done");
    const sandbox = await manager.acquire("one");
    expect([sandbox.created, (await sandbox.read("x")).text]).toEqual([false, "kept"]);
    await expect(graph.invoke(ask)).rejects.toThrow(MissingThread);
  });

  it("reconnects, or creates", async () => {
    manager = new SandboxManager({ ttl: "5m" });
    const made = await manager.getOrReconnect();
    await made.write("/workspace/x", "kept");
    const found = await manager.getOrReconnect(made.id);
    expect((await found.read("/workspace/x")).content).toBe("kept");
    const fresh = await manager.getOrReconnect("pb-no-such-sandbox");
    expect([fresh.id === made.id, fresh.isRunning]).toEqual([false, true]);
    expect(await manager.cleanup()).toMatchObject({ deleted: [] });
  });

  it("refuses settings beside a provider, and a backend", () => {
    manager = new SandboxManager();
    expect(() => new SandboxManager({ provider: new Podbay(), mode: "local" })).toThrow(ConfigError);
    const options = { backend: manager.backend } as object;
    expect(() => manager.createAgent(new ScriptedModel([]), options)).toThrow(ConfigError);
  });
});

describe("Python as a tool", () => {
  it("runs code on the agent's files, in a fresh sandbox each time", async () => {
    const call = (code: string): Step => [{ name: "execute_python", args: { code } }];
    const model = new ScriptedModel([
      [{ name: "write_file", args: { file_path: "/data.csv", content: "1,2" } }],
      call("print(open('data.csv').read()); open('left', 'w')"),
      call("import os; print(os.path.exists('left')); raise SystemExit(3)"),
      "done",
    ]);
    const agent = createDeepAgent({ model, tools: [executePythonTool()] });
    const { messages } = await agent.invoke(ask);
    const answers = messages.filter((message) => message.getType() === "tool").map(content);
    expect(answers.slice(1)).toEqual(["exit=0\n1,2\n", "exit=3\nFalse\n"]);
  });

  it("reports failures to the model", async () => {
    const late = executePythonTool({ timeout: 0.5 });
    expect(await late.invoke({ code: "import time; time.sleep(60)" })).toBe(
      "exit=124\n\n[The code timed out and was killed.]",
    );
    const denied = executePythonTool({ denyCommands: ["python3"] });
    expect(await denied.invoke({ code: "1" })).toMatch(/^exit=1\nThe sandbox couldn't run the code: /);
  });

  it("keeps virtual files below /app", () => {
    expect(seedFiles({ "/a": "1", "b/c": { content: ["x", "y"] }, "/app/d": { content: "2" } })).toEqual([
      ["/app/a", "1"],
      ["/app/b/c", "x\ny"],
      ["/app/d", "2"],
    ]);
    expect(() => seedFiles({ "../etc/passwd": "" })).toThrow(/outside of \/app/);
  });
});
