/** How backends begin and end, and which sandbox a call goes to. */

import { createDeepAgent, SandboxError } from "deepagents";
import { ConfigError, Manager, Podbay, PodbayError, SandboxNotFound, sandboxId } from "podbay";
import {
  createPodbaySandboxFactory,
  createPodbaySandboxFactoryFromSandbox,
  MissingThread,
  PodbaySandbox,
} from "podbay/deepagents";
import { describe, expect, it } from "vitest";
import { content, ScriptedModel } from "../scripted.js";

const unique = () => `node-${process.pid}-${Math.random().toString(36).slice(2)}`;

describe("a backend", () => {
  it("runs only between initialize and close", async () => {
    const backend = new PodbaySandbox();
    expect([backend.isRunning, backend.id !== ""]).toEqual([false, true]);
    await backend.initialize();
    expect(backend.isRunning).toBe(true);
    const again = await backend.initialize().catch((error: unknown) => error);
    expect(SandboxError.isInstance(again) && again.code).toBe("ALREADY_INITIALIZED");
    await backend.close();
    expect(backend.isRunning).toBe(false);
    await backend.close();
  });

  it("writes initial files, and deletes the sandbox if it can't", async () => {
    const initialFiles = { "a.sh": "echo ran", "deep/er/b.txt": new Uint8Array([66]), "/tmp/c": "" };
    const backend = await PodbaySandbox.create({ initialFiles });
    expect((await backend.execute("sh a.sh; cat deep/er/b.txt; ls /tmp/c")).output).toBe("ran\nB/tmp/c\n");
    await backend.close();
    const id = unique();
    const failing = PodbaySandbox.create({ id, ttl: "5m", initialFiles: { "/proc/x": "" } });
    await expect(failing).rejects.toThrow(/initial file '\/proc\/x'/);
    await expect(PodbaySandbox.fromId(id)).rejects.toThrow(SandboxNotFound);
  });

  it("finds a sandbox by its id, and leaves it", async () => {
    const id = unique();
    const first = await PodbaySandbox.create({ id, ttl: "5m" });
    await first.write("/workspace/x", "kept");
    const second = await PodbaySandbox.fromId(id);
    expect((await second.read("/workspace/x")).content).toBe("kept");
    await second.close();
    expect((await first.read("/workspace/x")).content).toBe("kept");
    expect(await second.release()).toBe(true);
    await expect(PodbaySandbox.fromId(id)).rejects.toThrow(SandboxNotFound);
  });

  it("can be made by factories", async () => {
    const create = createPodbaySandboxFactory();
    const [one, two] = await Promise.all([create(), create()]);
    expect(one.id).not.toBe(two.id);
    expect(createPodbaySandboxFactoryFromSandbox(one)()).toBe(one);
    await Promise.all([one.close(), two.close()]);
  });

  it("refuses settings that contradict each other", async () => {
    const sandbox = new Podbay().sandbox();
    expect(() => new PodbaySandbox({ sandbox, labels: { a: "b" } })).toThrow(ConfigError);
    expect(() => new PodbaySandbox({ perThread: true, id: "x" })).toThrow(ConfigError);
    expect(() => new PodbaySandbox({ timeout: -1 })).toThrow(ConfigError);
  });
});

describe("a run", () => {
  it("ends its command in the sandbox when it is aborted", async () => {
    const backend = await PodbaySandbox.create();
    const model = new ScriptedModel([[{ name: "execute", args: { command: "touch begun; sleep 60" } }], "done"]);
    const stop = new AbortController();
    const run = createDeepAgent({ model, backend }).invoke(
      { messages: [{ role: "user", content: "sleep" }] },
      { signal: stop.signal },
    );
    run.catch(() => {});
    await expect
      .poll(() => backend.downloadFiles(["/workspace/begun"]), { timeout: 10_000 })
      .toMatchObject([{ error: null }]);
    stop.abort();
    await expect(run).rejects.toThrow();
    await expect.poll(() => backend.instance.commands({ running: true }), { timeout: 5000 }).toEqual([]);
    await backend.close();
  });

  it("goes on after failures", async () => {
    const backend = await PodbaySandbox.create({ denyCommands: ["rm -rf"] });
    const model = new ScriptedModel([
      [{ name: "read_file", args: { file_path: "/none" } }],
      [{ name: "execute", args: { command: "rm -rf /workspace" } }],
      "done",
    ]);
    const { messages } = await createDeepAgent({ model, backend }).invoke({
      messages: [{ role: "user", content: "break things" }],
    });
    const answers = messages.filter((message) => message.getType() === "tool").map(content);
    expect(answers[0]).toContain("File '/none' not found");
    expect(answers[1]).toContain("[Command failed with exit code 126]");
    expect(content(messages.at(-1))).toBe("done");
    await backend.close();
  });
});

describe("a backend per thread", () => {
  const write = (text: string) => [{ name: "write_file", args: { file_path: "/workspace/x", content: text } }];
  const read = [{ name: "execute", args: { command: "cat x" } }];

  it("keeps threads apart, and finds a thread's sandbox again", async () => {
    const tenant = unique();
    const manager = new Manager(new Podbay(), { ttl: "5m" });
    const backend = new PodbaySandbox({ manager, tenant });
    const say = async (thread: string, model: ScriptedModel, used = backend) => {
      const { messages } = await createDeepAgent({ model, backend: used }).invoke(
        { messages: [{ role: "user", content: "go" }] },
        { configurable: { thread_id: thread } },
      );
      return messages.filter((message) => message.getType() === "tool").map(content);
    };
    await Promise.all([
      say("one", new ScriptedModel([write("first"), "done"])),
      say("two", new ScriptedModel([write("second"), "done"])),
    ]);
    const other = new PodbaySandbox({ manager: new Manager(new Podbay()), tenant });
    const answers = await Promise.all([
      say("one", new ScriptedModel([read, "done"])),
      say("two", new ScriptedModel([read, "done"]), other),
    ]);
    expect(answers[0]?.[0]).toMatch(/^first/);
    expect(answers[1]?.[0]).toMatch(/^second/);
    const { sandboxes } = await manager.list(tenant);
    const ids = [sandboxId(tenant, "one"), sandboxId(tenant, "two")];
    expect(sandboxes.map((sandbox) => sandbox.id)).toEqual(ids.toSorted());
    expect(await Promise.all([backend.release("one"), backend.release("two")])).toEqual([true, true]);
  });

  it("says that a thread_id is missing", async () => {
    const backend = new PodbaySandbox({ perThread: true });
    expect(backend.id).toBe("podbay-per-thread");
    expect((await backend.execute("true")).output).toContain("needs a thread_id");
    expect((await backend.read("/x")).error).toContain("needs a thread_id");
    expect(new MissingThread()).toBeInstanceOf(PodbayError);
  });
});
