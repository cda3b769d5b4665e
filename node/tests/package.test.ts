/** The package as users get it: packed, and installed in an empty folder. */

import { execFile } from "node:child_process";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const run = promisify(execFile);
const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** Versions of Node: the one that runs this, and those that `cargo xtask test node` installs. */
const nodes = [process.execPath, ...(process.env["TEST_NODES"]?.split(delimiter) ?? [])];

describe("the packed package", () => {
  let folder: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "podbay-pack-"));
    // It is built already: the scripts would build it again.
    await run("npm", ["pack", "--ignore-scripts", "--pack-destination", folder], { cwd: root });
    const [tarball] = (await readdir(folder)).filter((name) => name.endsWith(".tgz"));
    await writeFile(join(folder, "package.json"), '{ "private": true }');
    await run("npm", ["install", "--offline", "--no-audit", "--no-fund", `./${tarball}`], { cwd: folder });
    // Packing a debug build takes a while.
  }, 600_000);
  afterAll(() => rm(folder, { recursive: true }));

  it.each(nodes)("works as an ES module and as CommonJS, %s", async (node) => {
    const use = 'const s = new Sandbox(); console.log((await s.run("echo fine")).output.trim()); await s.close();';
    await writeFile(join(folder, "a.mjs"), `import { Sandbox } from "podbay"; ${use}`);
    await writeFile(join(folder, "b.cjs"), `const { Sandbox } = require("podbay"); (async () => { ${use} })();`);
    for (const name of ["a.mjs", "b.cjs"]) {
      expect((await run(node, [name], { cwd: folder })).stdout).toBe("fine\n");
    }
  });

  it("has types in both forms", async () => {
    const source = `
      import { Sandbox, type ExecResult } from "podbay";
      export async function main(): Promise<number | undefined> {
        await using sandbox = await Sandbox.create({ mode: "local", idleTtl: "1h" });
        const result: ExecResult = await sandbox.run("true", { signal: AbortSignal.timeout(1000) });
        return result.exitCode;
      }`;
    await writeFile(join(folder, "types.mts"), source);
    await writeFile(join(folder, "types.cts"), source);
    const tsc = join(root, "node_modules", "typescript", "bin", "tsc");
    const flags = ["--strict", "--module", "NodeNext", "--target", "ES2022", "--lib", "ES2023,ESNext.Disposable"];
    const types = ["--types", "node", "--typeRoots", join(root, "node_modules", "@types")];
    await run(process.execPath, [tsc, "--noEmit", ...flags, ...types, "types.mts", "types.cts"], { cwd: folder });
  });

  it("contains no sources and no tests", async () => {
    const files = await readdir(join(folder, "node_modules", "podbay"));
    expect(files.toSorted()).toEqual([
      "LICENSE",
      "README.md",
      "binaries",
      "cjs",
      "esm",
      "native.cjs",
      "native.d.cts",
      "package.json",
    ]);
  });
});
