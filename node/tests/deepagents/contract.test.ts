/** What Deep Agents expects of a sandbox, and what its own `BaseSandbox` gets wrong. */

import { isSandboxBackend } from "deepagents";
import { PodbaySandbox } from "podbay/deepagents";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { places } from "../places.js";

const EMPTY = "System reminder: File exists but has empty contents";

describe.each(places)("the contract, %s", (_, options) => {
  let sandbox: PodbaySandbox;
  let next = 0;

  /** A directory of a test's own. */
  async function directory(files: Record<string, string> = {}): Promise<string> {
    const path = `/workspace/test-${next++}`;
    await sandbox.instance.mkdir(path);
    const written = await sandbox.uploadFiles(
      Object.entries(files).map(([name, content]) => [`${path}/${name}`, Buffer.from(content)]),
    );
    expect(written.every((file) => file.error === null)).toBe(true);
    return path;
  }

  beforeAll(async () => {
    sandbox = await PodbaySandbox.create(options);
  }, 120_000);
  afterAll(() => sandbox?.close());

  it("is a sandbox that runs", () => {
    expect(isSandboxBackend(sandbox)).toBe(true);
    expect(sandbox.id).not.toBe("");
    expect(sandbox.isRunning).toBe(true);
    expect("routePrefixes" in sandbox).toBe(false);
  });

  describe("execute", () => {
    it("returns output, exit code and no truncation", async () => {
      expect(await sandbox.execute("echo hello")).toEqual({ output: "hello\n", exitCode: 0, truncated: false });
      expect((await sandbox.execute("exit 42")).exitCode).toBe(42);
      expect((await sandbox.execute("no-such-command-here")).exitCode).toBe(127);
    });

    it("keeps the order of both streams", async () => {
      const { output } = await sandbox.execute("echo 1; echo 2 >&2; echo 3; echo 4 >&2");
      expect(output).toBe("1\n2\n3\n4\n");
    });

    it("reports a timeout as a response, and ends what the command started", async () => {
      const late = await sandbox.execute("sleep 300 & echo begun; sleep 300", { timeout: 0.5 });
      expect(late.exitCode).toBe(124);
      expect(late.output).toBe("begun\nCommand timed out after 0.5 seconds");
      expect(await sandbox.instance.commands({ running: true })).toEqual([]);
    });

    it("keeps beginning and end of a long output, cut between characters", async () => {
      const { output, truncated } = await sandbox.execute("yes äöü | head -c 4000000");
      expect(truncated).toBe(true);
      expect(output).toMatch(/bytes omitted here; full output in \//);
      expect(output).not.toContain("\ufffd");
      const exact = await sandbox.execute(`head -c ${1 << 20} /dev/zero | tr '\\0' x`);
      expect([exact.truncated, exact.output.length]).toEqual([false, 1 << 20]);
    });

    it("doesn't reject when the sandbox is gone", async () => {
      const other = await PodbaySandbox.create(options);
      await other.close();
      expect(other.isRunning).toBe(false);
      const { output, exitCode } = await other.execute("true");
      expect([output.startsWith("Error: "), exitCode]).toEqual([true, 1]);
      expect((await other.read("/workspace/x")).error).toContain("closed");
      expect((await other.downloadFiles(["/x"]))[0]?.error).toContain("closed");
    }, 120_000);
  });

  describe("read", () => {
    it("returns lines as they are, and where they are", async () => {
      const at = await directory({ "a.txt": "one\ntwo\nthree\nfour\n", "b.txt": "no line feed" });
      expect(await sandbox.read(`${at}/a.txt`)).toEqual({
        content: "one\ntwo\nthree\nfour",
        mimeType: "text/plain",
        totalLines: 4,
        startLine: 1,
        endLine: 4,
      });
      expect(await sandbox.read(`${at}/a.txt`, 1, 2)).toEqual({
        content: "two\nthree",
        mimeType: "text/plain",
        totalLines: 4,
        startLine: 2,
        endLine: 3,
        nextOffset: 3,
      });
      expect((await sandbox.read(`${at}/b.txt`)).totalLines).toBe(1);
    });

    it("says exactly what an empty file is", async () => {
      const at = await directory({ "empty.py": "" });
      expect(await sandbox.read(`${at}/empty.py`)).toEqual({ content: EMPTY, mimeType: "text/plain" });
    });

    it("returns no lines for limit 0, and an error past the end", async () => {
      const at = await directory({ "a.md": "1\n2\n" });
      expect(await sandbox.read(`${at}/a.md`, 0, 0)).toEqual({ content: "", mimeType: "text/markdown" });
      expect(await sandbox.read(`${at}/a.md`, 7)).toEqual({ error: "Line offset 7 exceeds file length (2 lines)" });
      expect(await sandbox.read(`${at}/a.md`, 2)).toEqual({ error: "Line offset 2 exceeds file length (2 lines)" });
    });

    it("tells missing files, directories and forbidden files apart", async () => {
      const at = await directory();
      expect((await sandbox.read(`${at}/nothing`)).error).toBe(`File '${at}/nothing' not found`);
      expect((await sandbox.read(at)).error).toBe(`File '${at}': is a directory`);
      expect((await sandbox.readRaw(`${at}/nothing`)).error).toBe(`File '${at}/nothing' not found`);
    });

    it("returns the bytes of media, and refuses those that the tool would refuse", async () => {
      const at = await directory();
      const bytes = new Uint8Array([0x89, 0x50, 0, 255, 10]);
      await sandbox.write(`${at}/p.png`, Buffer.from(bytes).toString("base64"));
      expect(await sandbox.read(`${at}/p.png`)).toEqual({ content: bytes, mimeType: "image/png" });
      await sandbox.execute(`head -c 11000000 /dev/zero > ${at}/big.mp4`);
      expect((await sandbox.read(`${at}/big.mp4`)).error).toContain("11000000 bytes");
    });

    it("doesn't show binary contents as text", async () => {
      const at = await directory();
      await sandbox.uploadFiles([[`${at}/a.zip`, new Uint8Array([80, 75, 3, 4, 0, 0, 255])]]);
      expect((await sandbox.read(`${at}/a.zip`)).error).toBe(`File '${at}/a.zip' is not a text file (7 bytes)`);
    });

    it("keeps a byte order mark and a long line", async () => {
      const at = await directory({ "bom.txt": "\ufeffx", "long.txt": "y".repeat(3000) });
      expect((await sandbox.read(`${at}/bom.txt`)).content).toBe("\ufeffx");
      expect((await sandbox.read(`${at}/long.txt`)).content).toHaveLength(3000);
    });

    it("reads a whole file raw", async () => {
      const at = await directory({ "a.json": "{}\n" });
      const { data } = await sandbox.readRaw(`${at}/a.json`);
      expect(data).toMatchObject({ content: "{}\n", mimeType: "application/json" });
      expect(new Date(data?.modified_at ?? "").getTime()).toBeGreaterThan(0);
    });
  });

  describe("write and edit", () => {
    it("creates parents, replaces, and keeps every character", async () => {
      const at = await directory();
      const odd = "$VAR `x` $(y) \t \\ 'q' \"d\" 🎉 漢字 عربى\n";
      expect(await sandbox.write(`${at}/a/b/c d.txt`, odd)).toEqual({ path: `${at}/a/b/c d.txt`, filesUpdate: null });
      expect((await sandbox.execute(`cat '${at}/a/b/c d.txt'`)).output).toBe(odd);
      await sandbox.write(`${at}/a/b/c d.txt`, "");
      expect((await sandbox.execute(`wc -c < '${at}/a/b/c d.txt'`)).output.trim()).toBe("0");
      expect((await sandbox.write(at, "x")).error).toBe(`Failed to write to ${at}: is_directory`);
    });

    it("replaces one occurrence, or all", async () => {
      const at = await directory({ "a.txt": "a $1 a\nb [x]* b\n" });
      const file = `${at}/a.txt`;
      expect(await sandbox.edit(file, "$1", "$&")).toEqual({ path: file, filesUpdate: null, occurrences: 1 });
      expect((await sandbox.edit(file, "a", "c")).error).toMatch(/multiple/i);
      expect((await sandbox.edit(file, "a", "c", true)).occurrences).toBe(2);
      expect((await sandbox.edit(file, "[x]*", "[x]*")).occurrences).toBe(1);
      expect((await sandbox.edit(file, "nope", "x")).error).toBe(`String not found in file '${file}'`);
      expect((await sandbox.edit(`${at}/no`, "a", "b")).error).toBe(`Error: File '${at}/no' not found`);
      expect((await sandbox.execute(`cat ${file}`)).output).toBe("c $& c\nb [x]* b\n");
    });

    it("fills an empty file, and only an empty one", async () => {
      const at = await directory({ "empty.txt": "", "full.txt": "x" });
      expect((await sandbox.edit(`${at}/empty.txt`, "", "")).occurrences).toBe(0);
      expect((await sandbox.edit(`${at}/empty.txt`, "", "new")).occurrences).toBe(1);
      expect((await sandbox.read(`${at}/empty.txt`)).content).toBe("new");
      expect((await sandbox.edit(`${at}/full.txt`, "", "new")).error).toBe(
        "oldString must not be empty unless the file is empty",
      );
    });

    it("deletes files, directories and links, and says what is missing", async () => {
      const at = await directory({ "d/a": "1", b: "2" });
      await sandbox.execute(`ln -s nowhere ${at}/l`);
      for (const name of ["d", "b", "l"]) {
        expect(await sandbox.delete(`${at}/${name}`)).toEqual({ path: `${at}/${name}`, filesUpdate: null });
      }
      expect((await sandbox.delete(`${at}/b`)).error).toBe(`Error: '${at}/b' not found`);
      expect((await sandbox.ls(at)).files).toEqual([]);
    });
  });

  describe("ls", () => {
    it("lists absolute paths, with directories marked", async () => {
      const at = await directory({ ".hidden": "", "sub/x": "", "a b": "12" });
      await sandbox.execute(`ln -s sub ${at}/link`);
      const { files, error } = await sandbox.ls(`${at}/`);
      expect(error).toBeUndefined();
      expect(files?.map((file) => [file.path, file.is_dir])).toEqual([
        [`${at}/.hidden`, false],
        [`${at}/a b`, false],
        [`${at}/link/`, true],
        [`${at}/sub/`, true],
      ]);
      expect(files?.[1]?.size).toBe(2);
      expect(files?.[1]?.modified_at).toMatch(/^\d{4}-.*Z$/);
    });

    it("lists nothing in a missing directory or a file", async () => {
      const at = await directory({ f: "" });
      expect(await sandbox.ls(`${at}/none`)).toEqual({ files: [] });
      expect(await sandbox.ls(`${at}/f`)).toEqual({ files: [] });
    });

    it("lists names with line feeds and colons", async () => {
      const at = await directory();
      await sandbox.uploadFiles([[`${at}/a\nb:c`, Buffer.from("find me")]]);
      expect((await sandbox.ls(at)).files?.map((file) => file.path)).toEqual([`${at}/a\nb:c`]);
      expect((await sandbox.grep("find me", at)).matches).toEqual([{ path: `${at}/a\nb:c`, line: 1, text: "find me" }]);
      expect((await sandbox.glob("*", at)).files?.map((file) => file.path)).toEqual(["a\nb:c"]);
    });
  });

  describe("grep", () => {
    it("finds literal text, in order, in files that match", async () => {
      const at = await directory({ "a.py": "x $100\ny\nx [a-z]*\r\n", "b.txt": "x\n", "n/c.py": "x\n" });
      const { matches, truncated } = await sandbox.grep("x", at, "*.py");
      expect(truncated).toBeUndefined();
      expect(matches).toEqual([
        { path: `${at}/a.py`, line: 1, text: "x $100" },
        { path: `${at}/a.py`, line: 3, text: "x [a-z]*" },
        { path: `${at}/n/c.py`, line: 1, text: "x" },
      ]);
      expect((await sandbox.grep("[a-z]*", at)).matches).toHaveLength(1);
      expect((await sandbox.grep("X", at)).matches).toEqual([]);
    });

    it("stops at a count, and takes null for everything", async () => {
      const at = await directory({ "many.txt": "needle-in-here\n".repeat(50) });
      expect(await sandbox.grep("needle-in-here", at, null, 10)).toMatchObject({ truncated: true });
      expect((await sandbox.grep("needle-in-here", at, null, 10)).matches).toHaveLength(10);
      expect((await sandbox.grep("needle-in-here", null, null, null)).matches).toHaveLength(50);
    });

    it("fails aloud", async () => {
      expect((await sandbox.grep("x", "/no/such/place")).error).toContain("/no/such/place");
    });
  });

  describe("glob", () => {
    it("returns paths relative to the start, directories too", async () => {
      const at = await directory({ "file1.txt": "", "file2.txt": "", "file10.txt": "", "d/deep.txt": "", ".h": "" });
      const names = async (pattern: string) =>
        (await sandbox.glob(pattern, at)).files?.map((file) => file.path).toSorted();
      expect(await names("file[1-2].txt")).toEqual(["file1.txt", "file2.txt"]);
      expect(await names("file?.txt")).toEqual(["file1.txt", "file2.txt"]);
      expect(await names("*.txt")).toEqual(["file1.txt", "file10.txt", "file2.txt"]);
      expect(await names("**/*.txt")).toEqual(["d/deep.txt", "file1.txt", "file10.txt", "file2.txt"]);
      expect(await names("**/deep.txt")).toEqual(["d/deep.txt"]);
      expect(await names(".*")).toEqual([".h"]);
      expect(await names("file[!1]*.txt")).toEqual(["file2.txt"]);
      expect(await names("{file2,d}*")).toEqual(["d", "file2.txt"]);
      expect(await names("*.nope")).toEqual([]);
      const all = (await sandbox.glob("*", at)).files ?? [];
      expect(all.find((file) => file.path === "d")?.is_dir).toBe(true);
    });

    it("takes absolute patterns, and an unfinished one without throwing", async () => {
      const at = await directory({ "a.txt": "" });
      expect((await sandbox.glob(`${at}/*.txt`)).files?.map((file) => file.path)).toEqual([`${at}/a.txt`]);
      const broken = await sandbox.glob("[", at);
      expect(broken.error ?? broken.files).toBeDefined();
    });
  });

  describe("uploads and downloads", () => {
    it("answers in order, each file for itself", async () => {
      const at = await directory({ a: "1" });
      const sent = await sandbox.uploadFiles([
        [`${at}/x`, new Uint8Array([0, 255])],
        [at, new Uint8Array()],
        ["relative.txt", Buffer.from("r")],
      ]);
      expect(sent).toEqual([
        { path: `${at}/x`, error: null },
        { path: at, error: "is_directory" },
        { path: "relative.txt", error: null },
      ]);
      const got = await sandbox.downloadFiles([`${at}/x`, `${at}/none`, at, "/workspace/relative.txt"]);
      expect(got).toEqual([
        { path: `${at}/x`, content: new Uint8Array([0, 255]), error: null },
        { path: `${at}/none`, content: null, error: "file_not_found" },
        { path: at, content: null, error: "is_directory" },
        { path: "/workspace/relative.txt", content: new Uint8Array([114]), error: null },
      ]);
    });

    it("copies bytes on entry", async () => {
      const at = await directory();
      const bytes = new Uint8Array(1 << 20).fill(7);
      const sent = sandbox.uploadFiles([[`${at}/x`, bytes]]);
      bytes.fill(9);
      await sent;
      const [got] = await sandbox.downloadFiles([`${at}/x`]);
      expect(got?.content?.every((byte) => byte === 7)).toBe(true);
    });
  });

  it("lets Deep Agents write where it writes", async () => {
    for (const path of ["/large_tool_results/x.txt", "/conversation_history/y.md"]) {
      expect((await sandbox.write(path, "kept")).error).toBeUndefined();
      expect((await sandbox.read(path)).content).toBe("kept");
    }
  });
});
