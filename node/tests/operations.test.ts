/** Every operation of a sandbox, on every place. */

import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  AlreadyExists,
  CommandFailed,
  ConfigError,
  IsDirectory,
  NotFound,
  OperationError,
  PodbayError,
  type Progress,
  Sandbox,
} from "podbay";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { places } from "./places.js";

describe.each(places)("a sandbox, %s", (_, options) => {
  let sandbox: Sandbox;
  let local: string;

  beforeAll(async () => {
    sandbox = await Sandbox.create(options);
    local = await mkdtemp(join(tmpdir(), "podbay-"));
  }, 120_000);
  afterAll(async () => {
    await sandbox?.close();
    await rm(local, { recursive: true });
  });

  it("says what it is", async () => {
    expect(sandbox.mode).toBe(options.mode ?? "local");
    expect([sandbox.created, sandbox.closed, sandbox.replaced]).toEqual([true, false, false]);
    expect((await sandbox.hello()).workdir).toBe("/workspace");
    expect((await sandbox.protections()).protections.length).toBeGreaterThan(0);
  });

  it("runs commands", async () => {
    const result = await sandbox.run("echo out; echo err >&2; exit 3");
    expect([result.stdout, result.stderr, result.exitCode, result.ok]).toEqual(["out\n", "err\n", 3, false]);
    expect(() => result.check()).toThrow(CommandFailed);
    expect(() => result.check()).toThrow(/exited with code 3: err$/);
    expect((await sandbox.run(["echo", "a b", "$HOME"])).output).toBe("a b $HOME\n");
    const env = { NAME: "värld" };
    expect((await sandbox.run('cat; echo "$NAME"; pwd', { stdin: "in ", env, cwd: "/tmp" })).output).toBe(
      "in värld\n/tmp\n",
    );
    expect((await sandbox.run("kill -9 $$")).signal).toBe("SIGKILL");
    expect((await sandbox.run("yes | head -c 100000", { outputLimit: 100 })).dropped).toBe(99_900);
    await expect(sandbox.run([])).rejects.toThrow(TypeError);
    await expect(sandbox.run("true", { timeout: -1 })).rejects.toThrow(TypeError);
  });

  it("follows commands", async () => {
    const events: string[] = [];
    for await (const event of await sandbox.stream("echo 1; sleep 0.05; echo 2 >&2; exit 4")) {
      events.push(event.kind === "output" ? `${event.stream} ${event.text.trim()}` : event.kind);
      if (event.kind === "end") {
        expect(event.info.exitCode).toBe(4);
      }
    }
    expect(events).toEqual(["stdout 1", "stderr 2", "end"]);
  });

  it("writes to a command's input", async () => {
    const exec = await sandbox.stream("tr a-z A-Z", { stdin: true });
    expect(await exec.write("hello")).toBe(true);
    await exec.closeInput();
    const { value } = await exec.next();
    expect(value).toMatchObject({ kind: "output", text: "HELLO" });
    expect((await exec.wait()).exitCode).toBe(0);
  });

  it("starts, lists, signals and attaches to commands", async () => {
    const { id } = await sandbox.start("echo begun; sleep 60");
    expect((await sandbox.commands({ running: true })).map((command) => command.id)).toEqual([id]);
    const exec = await sandbox.attach(id);
    expect((await exec.next()).value).toMatchObject({ kind: "output", text: "begun\n" });
    expect(exec.offset).toBe(6);
    expect(await sandbox.signal(id, 15, { main: true })).toBe(1);
    expect((await exec.wait()).signal).toBe("SIGTERM");
    await sandbox.kill(id);
    expect((await sandbox.status(id)).state).toBe("exited");
  });

  it("writes a command's output to a file without fetching it", async () => {
    const { id } = await sandbox.start("printf 0123456789");
    await expect.poll(async () => (await sandbox.status(id)).state, { timeout: 5000 }).toBe("exited");
    expect(await sandbox.writeOutputOf("whole", id)).toMatchObject({ size: 10, created: true });
    expect(Buffer.from(await sandbox.readBytes("whole")).toString()).toBe("0123456789");
    await sandbox.writeOutputOf("ends", id, { limit: 6, gap: "<gap>" });
    expect(Buffer.from(await sandbox.readBytes("ends")).toString()).toBe("012<gap>789");
    await expect(sandbox.writeOutputOf("none", "unknown")).rejects.toThrow(OperationError);
  });

  it("kills a command whose loop is left", async () => {
    let id = "";
    const exec = await sandbox.stream("echo 1; sleep 60");
    for await (const _event of exec) {
      id = exec.id;
      break;
    }
    expect((await sandbox.status(id)).killed).toBe(true);
  });

  it("ends a command in the sandbox when its signal is aborted", async () => {
    const stop = new AbortController();
    const running = sandbox.run("echo $$ > /tmp/pid; sleep 60", { signal: stop.signal });
    await expect.poll(async () => (await sandbox.run("cat /tmp/pid")).exitCode, { timeout: 5000 }).toBe(0);
    stop.abort(new Error("enough"));
    await expect(running).rejects.toThrow("enough");
    await expect.poll(() => sandbox.commands({ running: true }), { timeout: 5000 }).toEqual([]);
    await expect(sandbox.run("true", { signal: AbortSignal.abort() })).rejects.toThrow(/aborted/);

    const streaming = new AbortController();
    const exec = await sandbox.stream("echo 1; sleep 60", { signal: streaming.signal });
    await exec.next();
    streaming.abort();
    await expect(exec.next()).rejects.toThrow(/aborted/);
    await expect.poll(() => sandbox.commands({ running: true }), { timeout: 5000 }).toEqual([]);
  });

  it("works on files", async () => {
    const written = await sandbox.write("f/a.txt", "one\ntwo\n");
    expect(written).toMatchObject({ path: "/workspace/f/a.txt", size: 8, created: true });
    await expect(sandbox.write("f/a.txt", "", { createOnly: true })).rejects.toThrow(AlreadyExists);
    const page = await sandbox.read("f/a.txt", { offset: 1, limit: 1 });
    expect([page.text, page.startLine, page.totalLines, page.nextOffset]).toEqual(["two", 2, 2, undefined]);
    expect(Buffer.from(await sandbox.readBytes("f/a.txt", { start: 4, length: 3 })).toString()).toBe("two");
    expect(await sandbox.edit("f/a.txt", "two", "2")).toMatchObject({ occurrences: 1, firstLine: 2 });
    expect(await sandbox.stat("f/a.txt")).toMatchObject({ kind: "file", size: 6, isDir: false, links: 1 });
    expect((await sandbox.ls("f")).entries.map((entry) => entry.name)).toEqual(["a.txt"]);
    expect((await sandbox.glob("*.txt", "f")).matches.map((match) => match.relative)).toEqual(["a.txt"]);
    expect((await sandbox.grep("one", "f")).matches).toMatchObject([{ line: 1, text: "one" }]);
    expect((await sandbox.tree("f")).entries.map((entry) => entry.relative)).toEqual(["a.txt"]);
    expect(await sandbox.mkdir("f/d/e")).toEqual({ path: "/workspace/f/d/e", created: true });
    expect(await sandbox.move("f/a.txt", "f/d/b.txt")).toMatchObject({ kind: "file", copied: false });
    expect(await sandbox.delete("f")).toMatchObject({ kind: "dir", removed: 4 });
    expect(await sandbox.delete("f", { missingOk: true })).toEqual({ path: "/workspace/f", removed: 0 });
  });

  it("throws errors with names and codes", async () => {
    const failure = await sandbox.read("none").catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(NotFound);
    expect(failure).toBeInstanceOf(OperationError);
    expect(failure).toBeInstanceOf(PodbayError);
    expect(failure).toMatchObject({ name: "NotFound", code: "not_found", path: "none" });
    await expect(sandbox.read("/tmp")).rejects.toThrow(IsDirectory);
    // @ts-expect-error: a path is a string
    await expect(sandbox.read(7)).rejects.toThrow(TypeError);
    expect(() => new Sandbox({ mode: "moon" as "local" })).toThrow(ConfigError);
    expect(() => new Sandbox({ "raw.imagge": "x" })).toThrow(/raw.image/);
  });

  it("keeps names that aren't UTF-8", async () => {
    await sandbox.run("mkdir -p odd; touch \"odd/$(printf 'a\\377b')\"");
    const [entry] = (await sandbox.ls("odd")).entries;
    expect(entry?.name).toBe("a\udcffb");
    expect((await sandbox.stat(entry?.path ?? "")).size).toBe(0);
    await sandbox.delete("odd");
  });

  it("moves many files, each with a result", async () => {
    const sent = await sandbox.upload([
      ["many/a", "1"],
      ["/proc/nope", "2"],
      ["many/b", new Uint8Array([3])],
    ]);
    expect(sent.map((file) => file.error instanceof PodbayError)).toEqual([false, true, false]);
    const got = await sandbox.download(["many/b", "many/c"]);
    expect(got[0]?.content).toEqual(new Uint8Array([3]));
    expect(got[1]?.error).toBeInstanceOf(NotFound);
  });

  it("moves files and trees between this machine and the sandbox", async () => {
    await writeFile(join(local, "big"), Buffer.alloc(5 << 20, 1));
    const told: Progress[] = [];
    await sandbox.uploadFile(join(local, "big"), "up/big", { progress: (progress) => told.push(progress) });
    await expect.poll(() => told.at(-1)).toMatchObject({ files: 1, bytes: 5 << 20 });
    expect(await sandbox.downloadFile("up/big", join(local, "back"))).toBe(5 << 20);
    expect((await readFile(join(local, "back"))).equals(await readFile(join(local, "big")))).toBe(true);
    expect((await sandbox.uploadTree(local, "tree")).files).toBe(2);
    expect(await sandbox.downloadTree("tree", join(local, "tree"))).toMatchObject({ files: 2, failed: [] });
    const stop = () => {
      throw new Error("no more");
    };
    await expect(sandbox.uploadFile(join(local, "big"), "up/big2", { progress: stop })).rejects.toThrow("no more");
  });

  it("serves 1,000 calls at once", async () => {
    const files = Array.from({ length: 1000 }, (_file, index) => `calls/${index}`);
    await Promise.all(files.map((file) => sandbox.write(file, file)));
    const read = await Promise.all(files.map((file) => sandbox.read(file)));
    expect(read.map((page) => page.text)).toEqual(files);
  });

  it("survives a storm of aborted calls", async () => {
    const storm = Array.from({ length: 200 }, async (_call, index) => {
      const stop = new AbortController();
      const call = sandbox.run("sleep 5", { signal: stop.signal });
      setTimeout(() => stop.abort(), index % 20);
      await expect(call).rejects.toThrow(/aborted/);
    });
    await Promise.all(storm);
    await expect.poll(() => sandbox.commands({ running: true }), { timeout: 20_000 }).toEqual([]);
    expect((await sandbox.run("echo fine")).output).toBe("fine\n");
  });
});
