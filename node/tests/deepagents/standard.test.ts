/** What LangChain's standard tests for sandboxes ask beyond the contract's own suite, in our words. */

import { PodbaySandbox } from "podbay/deepagents";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { places } from "../places.js";

const UNICODE = "🎉 漢字 عربى Привет";
const numbered = (count: number) => Array.from({ length: count }, (_, index) => `Row_${index + 1}_content`);

describe.each(places)("standard behaviour, %s", (_, options) => {
  let sandbox: PodbaySandbox;
  let next = 0;
  const directory = () => `/workspace/standard-${next++}`;
  const output = async (command: string) => (await sandbox.execute(command)).output;

  beforeAll(async () => {
    sandbox = await PodbaySandbox.create({
      ...options,
      initialFiles: { "start.txt": "at the root", "a/b/c/deep.txt": "deep", "run.sh": "echo ran" },
    });
  }, 120_000);
  afterAll(() => sandbox?.close());

  it("has its initial files", async () => {
    expect(await output("cat start.txt a/b/c/deep.txt; sh run.sh")).toBe("at the rootdeepran\n");
    expect((await sandbox.read("/workspace/start.txt")).content).toBe("at the root");
    const [got] = await sandbox.downloadFiles(["/workspace/a/b/c/deep.txt"]);
    expect(Buffer.from(got?.content ?? []).toString()).toBe("deep");
    expect((await sandbox.ls("/workspace")).files?.map((file) => file.path)).toContain("/workspace/start.txt");
  });

  it("executes lines, variables and failures", async () => {
    expect(await output("echo one; echo two; echo three")).toBe("one\ntwo\nthree\n");
    expect(await output('export NAME=value; echo "$NAME"')).toBe("value\n");
    expect(await output("echo oops >&2")).toBe("oops\n");
    // No command's end is that of a shell which others share.
    expect((await sandbox.execute("exit 42")).exitCode).toBe(42);
    expect(await output('echo "still here, NAME=$NAME"')).toBe("still here, NAME=\n");
  });

  it.each([
    ["1,000 lines", `${numbered(1000).join("\n")}\n`],
    ["only line feeds", "\n".repeat(5)],
    ["nothing", ""],
    ["Unicode", UNICODE],
    ["what a shell would expand", "$VAR `id` $(id) \\t\t'\"!"],
    ["carriage returns", "a\r\nb\r\n"],
  ])("writes %s", async (_what, content) => {
    const at = directory();
    expect(await sandbox.write(`${at}/x/y/z/file.txt`, content)).toEqual({
      path: `${at}/x/y/z/file.txt`,
      filesUpdate: null,
    });
    const [got] = await sandbox.downloadFiles([`${at}/x/y/z/file.txt`]);
    expect(Buffer.from(got?.content ?? []).toString()).toBe(content);
  });

  it("normalises doubled slashes, and takes spaces, dashes and quotes in paths", async () => {
    const at = directory();
    await sandbox.write(`${at}//a///b.txt`, "1");
    expect(await output(`cat ${at}/a/b.txt`)).toBe("1");
    for (const name of ["with space", "-dash", "it's (1)", "$(touch pwned)", UNICODE]) {
      expect(await sandbox.uploadFiles([[`${at}/${name}`, Buffer.from(name)]])).toMatchObject([{ error: null }]);
      const [got] = await sandbox.downloadFiles([`${at}/${name}`]);
      expect(Buffer.from(got?.content ?? []).toString()).toBe(name);
    }
    expect((await sandbox.ls(at)).files?.map((file) => file.path)).toContain(`${at}/$(touch pwned)`);
    expect((await sandbox.glob("**/pwned", "/workspace")).files).toEqual([]);
  });

  it("reads a long file page by page", async () => {
    const path = `${directory()}/long.txt`;
    const lines = numbered(1000);
    await sandbox.write(path, `${lines.join("\n")}\n`);
    expect((await sandbox.read(path, 10, 5)).content).toBe(lines.slice(10, 15).join("\n"));
    const read: string[] = [];
    let offset: number | undefined = 0;
    while (offset !== undefined) {
      const page: Awaited<ReturnType<PodbaySandbox["read"]>> = await sandbox.read(path, offset, 400);
      read.push(String(page.content));
      offset = page.nextOffset;
    }
    expect(read).toHaveLength(3);
    expect(read.join("\n")).toBe(lines.join("\n"));
  });

  it.each([
    ["several lines", "a\nb\nc\n", "a\nb", "x", "x\nc\n"],
    ["nothing instead", "keep drop keep", " drop", "", "keep keep"],
    ["Unicode", `1 ${UNICODE} 2`, UNICODE, "漢", "1 漢 2"],
    ["whitespace", "a  \tb", "  \t", " ", "a b"],
    ["long texts", `<${"x".repeat(1000)}>`, "x".repeat(1000), "y".repeat(1000), `<${"y".repeat(1000)}>`],
    ["a part of a word", "unlocked", "lock", "block", "unblocked"],
    ["metacharacters", "a.*b [c] $d ^e", ".*b [c] $d ^", "\\1$&", "a\\1$&e"],
    ["the line before the last line feed", "a\nb\n", "b", "c", "a\nc\n"],
  ])("edits %s", async (_what, before, old, replacement, after) => {
    const path = `${directory()}/file.txt`;
    await sandbox.write(path, before);
    expect((await sandbox.edit(path, old, replacement)).occurrences).toBe(1);
    const [got] = await sandbox.downloadFiles([path]);
    expect(Buffer.from(got?.content ?? []).toString()).toBe(after);
  });

  it("leaves a file alone whose text is ambiguous", async () => {
    const path = `${directory()}/file.txt`;
    await sandbox.write(path, "a a a");
    expect((await sandbox.edit(path, "a", "b")).error).toMatch(/multiple/i);
    expect((await sandbox.read(path)).content).toBe("a a a");
    expect((await sandbox.edit(path, "a", "b", true)).occurrences).toBe(3);
  });

  it("lists many entries, and an empty directory", async () => {
    const at = directory();
    await sandbox.uploadFiles(Array.from({ length: 50 }, (_entry, index) => [`${at}/f${index}`, new Uint8Array()]));
    expect((await sandbox.ls(at)).files).toHaveLength(50);
    await sandbox.execute(`mkdir ${at}/empty`);
    expect(await sandbox.ls(`${at}/empty`)).toEqual({ files: [] });
  });

  it("finds a line in the middle, Unicode, and text with a line feed as what it is", async () => {
    const at = directory();
    const lines = numbered(100).with(49, `needle ${UNICODE}`);
    await sandbox.write(`${at}/a/b/c.txt`, lines.join("\n"));
    const match = { path: `${at}/a/b/c.txt`, line: 50, text: `needle ${UNICODE}` };
    expect((await sandbox.grep("needle", at)).matches).toEqual([match]);
    expect((await sandbox.grep("漢字", at)).matches).toEqual([match]);
    // It isn't one pattern or the other.
    expect((await sandbox.grep("needle\nRow_1_content", at)).matches ?? []).toEqual([]);
  });

  it("searches the root without the kernel's file systems", async () => {
    // Those of running processes, podbayd's among them, would match.
    const found = await sandbox.grep("podbayd", "/", "cmdline");
    expect([found.error, found.matches]).toEqual([undefined, []]);
    const globbed = (await sandbox.glob("**/cmdline", "/")).files ?? [];
    expect(globbed.filter((file) => /^\/?(proc|sys)\//.test(file.path))).toEqual([]);
  });

  it("tells times exactly, and sorts what it finds", async () => {
    const at = directory();
    await sandbox.uploadFiles(["c", "a", "b"].map((name) => [`${at}/${name}`, new Uint8Array()]));
    await sandbox.execute(`touch -d '2026-01-02 03:04:05.678' ${at}/a`);
    const { files } = await sandbox.glob("*", at);
    expect(files?.map((file) => file.path)).toEqual(["a", "b", "c"]);
    expect(files?.[0]?.modified_at).toMatch(/:05\.678Z$/);
  });

  it("says that a file is forbidden, not that it is missing", async () => {
    const path = `${directory()}/secret`;
    await sandbox.write(path, "1");
    await sandbox.execute(`chmod 0 ${path}`);
    const isRoot = (await output("id -u")) === "0\n";
    const { error } = await sandbox.read(path);
    // Permissions don't hold for root.
    expect(error).toBe(isRoot ? undefined : `File '${path}': permission denied`);
  });

  it("carries large files", async () => {
    const path = `${directory()}/large.bin`;
    const bytes = Buffer.alloc(5 << 20, "podbay\0");
    expect(await sandbox.uploadFiles([[path, bytes]])).toEqual([{ path, error: null }]);
    const [got] = await sandbox.downloadFiles([path]);
    expect(bytes.equals(got?.content ?? new Uint8Array())).toBe(true);
  });

  it("works on a tree from end to end", async () => {
    const at = directory();
    await sandbox.write(`${at}/notes.txt`, "version 1\n");
    expect((await sandbox.read(`${at}/notes.txt`)).content).toBe("version 1");
    await sandbox.edit(`${at}/notes.txt`, "1", "2");
    expect((await sandbox.read(`${at}/notes.txt`)).content).toBe("version 2");
    await sandbox.write(`${at}/sub/a.txt`, "version 3");
    await sandbox.write(`${at}/sub/deeper/b.txt`, "version 4");
    expect((await sandbox.glob("**/*.txt", at)).files).toHaveLength(3);
    expect((await sandbox.grep("version", at)).matches).toHaveLength(3);
    expect((await sandbox.ls(at)).files?.map((file) => file.is_dir)).toEqual([false, true]);
  });
});
