/** Finding, listing and deleting sandboxes; rules; audit. */

import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import {
  type AuditMeta,
  ClosedError,
  Manager,
  Podbay,
  PolicyDenied,
  Sandbox,
  SandboxNotFound,
  sandboxId,
} from "podbay";
import { describe, expect, it } from "vitest";

const unique = () => `node-${process.pid}-${Math.random().toString(36).slice(2)}`;

describe("a provider", () => {
  it("creates, finds, lists and deletes", async () => {
    const podbay = new Podbay({ mode: "local" });
    const test = unique();
    const made = await podbay.getOrCreate({ id: test, labels: { test }, ttl: "10m" });
    const found = await podbay.getOrCreate({ id: test });
    expect([made.created, found.created]).toEqual([true, false]);
    await made.write("x", "1");
    expect((await (await podbay.reconnect(test)).read("x")).text).toBe("1");
    const { sandboxes, cursor } = await podbay.list({ labels: { test }, status: "running" });
    expect(sandboxes).toMatchObject([{ id: test, phase: "running" }]);
    expect(sandboxes[0]?.expires).toBeGreaterThan(Date.now());
    expect(cursor).toBeUndefined();
    expect((await podbay.stats()).total).toBeGreaterThan(0);
    expect(await podbay.poolStatus()).toEqual({ available: 0, active: 0, total: 0, target: 0 });
    // One that was only found stays when it is closed.
    await found.close();
    expect(await podbay.delete(test)).toBe(true);
    expect(await podbay.delete(test)).toBe(false);
    await expect(podbay.reconnect(test)).rejects.toThrow(SandboxNotFound);
    await expect(podbay.list({ status: "odd" as "warm" })).rejects.toThrow(TypeError);
  });

  it("gives each thread its own sandbox, and concurrent callers the same", async () => {
    const manager = new Manager({ mode: "local" }, { ttl: 600 });
    const [thread, tenant] = [unique(), unique()];
    const both = await Promise.all([manager.acquire(thread, tenant), manager.acquire(thread, tenant)]);
    expect(both.map((sandbox) => sandbox.id)).toEqual([sandboxId(tenant, thread), Manager.id(tenant, thread)]);
    expect(both.filter((sandbox) => sandbox.created)).toHaveLength(1);
    expect((await manager.list(tenant)).sandboxes).toHaveLength(1);
    expect(await manager.release(thread, tenant)).toBe(true);
    expect((await manager.list(tenant)).sandboxes).toHaveLength(0);
  });

  it("deletes what it created, and only that", async () => {
    let id = "";
    {
      const sandbox = await Sandbox.create();
      id = sandbox.id;
      await sandbox[Symbol.asyncDispose]();
      await sandbox.close();
      await expect(sandbox.run("true")).rejects.toThrow(ClosedError);
    }
    await expect(new Podbay().reconnect(id)).rejects.toThrow(SandboxNotFound);
  });
});

describe("rules and audit", () => {
  it("forbids paths and commands", async () => {
    const options = { denyPrefixes: ["/workspace/secret"], denyCommands: ["rm -rf"] };
    const sandbox = await Sandbox.create(options);
    await expect(sandbox.write("secret/x", "1")).rejects.toThrow(PolicyDenied);
    await expect(sandbox.run("rm -rf /workspace")).rejects.toThrow(PolicyDenied);
    await sandbox.close();
  });

  it("confines paths to a root", async () => {
    const sandbox = await Sandbox.create({ virtualMode: true });
    await sandbox.write("/a.txt", "1");
    expect((await sandbox.run("cat /workspace/a.txt")).output).toBe("1");
    await sandbox.run("ln -s /etc etc");
    await expect(sandbox.read("/etc/passwd")).rejects.toThrow(PolicyDenied);
    await sandbox.close();
  });

  it("tells a function of every operation", async () => {
    const told: [string, string, AuditMeta][] = [];
    const sandbox = await Sandbox.create({ auditLog: (...entry) => told.push(entry) });
    await sandbox.run("exit 3");
    await sandbox.write("a", "12345");
    await sandbox.close();
    expect(told.map(([op]) => op)).toEqual(["create", "exec", "write", "destroy"]);
    expect(told[1]?.[1]).toBe("exit 3");
    expect(told[1]?.[2]).toMatchObject({ exitCode: 3, sandbox: sandbox.id });
    expect(told[2]?.[2].bytes).toBe(5);
    expect(told[3]?.[2]).toMatchObject({ effect: { changed: true } });
  });

  it("tells it which sandboxes a clean-up deleted", async () => {
    const told: [string, string, AuditMeta][] = [];
    // A home of its own, because other tests have idle sandboxes too. The path must be short, because it leads to sockets.
    const home = await mkdtemp("/tmp/pb-");
    const podbay = new Podbay({ home, auditLog: (...entry) => told.push(entry) });
    const idle = await podbay.getOrCreate();
    await setTimeout(800);
    await podbay.cleanup("400ms");
    const [op, , meta] = told.at(-1) ?? [];
    expect([op, meta?.effect]).toEqual(["cleanup", { changed: true, deleted: [idle.id] }]);
    await rm(home, { recursive: true, force: true });
  });

  it("lets a strict audit refuse an operation", async () => {
    const auditLog = (op: string, target: string) => {
      if (op === "exec" && target.includes("forbidden")) {
        throw new Error("not on my watch");
      }
    };
    const sandbox = await Sandbox.create({ auditLog, strictAudit: true });
    await expect(sandbox.run("echo forbidden")).rejects.toThrow("not on my watch");
    expect((await sandbox.run("echo fine")).output).toBe("fine\n");
    await sandbox.close();
  });

  // It switched off the log that the settings name, and alone decided whether the audit is strict.
  it("tells a function in addition to the file, as strictly as the settings say", async () => {
    const folder = await mkdtemp("/tmp/pb-");
    const config = join(folder, "podbay.toml");
    const file = join(folder, "audit.jsonl");
    await writeFile(config, `[audit]\nfile = ${JSON.stringify(file)}\nstrict = true\n`);
    const auditLog = (op: string) => {
      if (op === "write") {
        throw new Error("not on my watch");
      }
    };
    const sandbox = await Sandbox.create({ auditLog, config });
    await expect(sandbox.write("f", "x")).rejects.toThrow("not on my watch");
    await sandbox.close();
    const lines = (await readFile(file, "utf8")).trim().split("\n");
    const ended = lines.map((line) => JSON.parse(line)).filter(({ event }) => event === "ended");
    expect(ended.map(({ op, decision }) => `${op} ${decision}`)).toEqual([
      "create allowed",
      "write denied",
      "destroy allowed",
    ]);
    expect(() => new Podbay({ strictAudit: true })).toThrow("nothing records operations");
    await rm(folder, { recursive: true });
  });

  it("warns once when operations go unrecorded", async () => {
    const folder = await mkdtemp("/tmp/pb-");
    const warnings: Error[] = [];
    const note = (warning: Error) => warning.name === "PodbayAuditWarning" && warnings.push(warning);
    process.on("warning", note);
    await mkdir(join(folder, "logs"));
    const recorded = await Sandbox.create({ auditLog: join(folder, "logs", "audit.jsonl") });
    await rename(join(folder, "logs"), join(folder, "away"));
    for (let count = 0; count < 3; count += 1) {
      expect((await recorded.write("f", "x")).size).toBe(1);
    }
    await expect.poll(() => warnings.length).toBe(1);
    expect(warnings[0]?.message).toContain("can't record 'write' in the audit log: ");
    await recorded.close();
    expect(warnings.length).toBe(1);
    process.off("warning", note);
    await rm(folder, { recursive: true });
  });
});
