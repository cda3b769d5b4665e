/** The programs in the documentation: they are compiled and run, except for those that need a cluster of one's own. */

import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const run = promisify(execFile);
const root = dirname(dirname(fileURLToPath(import.meta.url)));
const tsc = join(root, "node_modules", "typescript", "bin", "tsc");
const FLAGS = [
  "--ignoreConfig",
  "--strict",
  "--module",
  "NodeNext",
  "--target",
  "ES2022",
  "--lib",
  "ES2023,ESNext.Disposable",
];

/** Stands before a program that can only be compiled here. */
const NEEDS_CLUSTER = "<!-- needs a cluster -->\n";

interface Program {
  source: string;
  needsCluster: boolean;
}

async function programs(page: string): Promise<Program[]> {
  const text = await readFile(join(root, "..", page), "utf8");
  return [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map((block) => ({
    source: block[1] ?? "",
    needsCluster: text.slice(0, block.index).endsWith(NEEDS_CLUSTER),
  }));
}

/** What a program takes from its reader, or from those before it. */
function given(source: string): string {
  const names = {
    model: 'import { writer } from "../scripted.js";\nconst model = writer();',
    "sandbox.": 'import { Sandbox } from "podbay";\nawait using sandbox = new Sandbox();',
  };
  const missing = Object.entries(names).filter(([name]) => {
    const word = name.replace(".", "");
    return source.includes(name) && !new RegExp(`(const|using) ${word}\\b`).test(source);
  });
  return missing.map(([, declaration]) => declaration).join("\n");
}

describe("the documentation", () => {
  let directory: string;

  beforeAll(async () => {
    // Below the package, so that programs find it by its name.
    directory = await mkdtemp(join(root, "tests", "tmp-"));
  });
  afterAll(() => rm(directory, { recursive: true }));

  async function compile(files: string[], more: string[]): Promise<void> {
    const done = run(process.execPath, [tsc, ...FLAGS, "--types", "node", "--skipLibCheck", ...more, ...files], {
      cwd: directory,
    });
    // The compiler writes its messages to standard output.
    await done.catch((failure: { stdout?: string }) => expect.unreachable(failure.stdout ?? String(failure)));
  }

  it("has a program in the README that runs", async () => {
    const [program, ...more] = await programs("README.md");
    expect(more).toEqual([]);
    await writeFile(join(directory, "readme.mts"), program?.source ?? "");
    await compile(["readme.mts"], []);
    const { stdout } = await run(process.execPath, ["readme.mjs"], { cwd: directory });
    expect(stdout).toBe("HELLO\n4\n\n");
  });

  it.each([
    ["docs/typescript.md", 5],
    ["docs/deepagents.md", 5],
    ["docs/langgraph.md", 3],
    ["docs/moving/bitkaio-langchain-kubernetes.md", 2],
  ])("has programs in %s that compile and run", async (page, count) => {
    const all = await programs(page);
    expect(all).toHaveLength(count);
    const files = all.map((_, index) => `${page.replaceAll(/\W/g, "-")}-${index}.ts`);
    const write = ({ source }: Program, index: number) =>
      writeFile(join(directory, files[index] ?? ""), `${given(source)}\n${source}\nexport {};\n`);
    await Promise.all(all.map(write));
    await compile(files, ["--noEmit"]);
    for (const [index, { needsCluster }] of all.entries()) {
      if (!needsCluster) {
        await import(join(directory, files[index] ?? ""));
      }
    }
  });
});
