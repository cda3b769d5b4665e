/**
 * Compares two Deep Agents backends on a cluster, operation by operation, in one run:
 *
 *     podbay   PodbaySandbox of podbay/deepagents, in mode raw
 *     scripts  Deep Agents' own BaseSandbox, which runs a script by one pod exec per operation
 *
 * They take turns operation by operation, so that other load on the machine affects both alike. Prints Markdown tables. Run it
 * by `cargo xtask bench node`, which builds the package and starts a cluster.
 */

import type { BaseSandbox } from "deepagents";
import { figures, row, timed } from "./measure.js";
import { overhead } from "./overhead.js";
import { ExecSandbox, podbay } from "./pods.js";

const [IMAGE, NAMESPACE] = ["localhost/debian:1", "default"];
const TURNS = 60;
const FILES = 20;
const ROOT = "/workspace/bench";

/** How many times faster than scripts Podbay has to be. */
const [FASTER_EXECUTE, FASTER_FILES] = [10, 20];

interface Operation {
  name: string;
  target: number;
  /** Does it, and returns whether the result is right. */
  run(backend: BaseSandbox, turn: number): Promise<boolean>;
}

/** Three of something. */
const THREE = [0, 1, 2];

const OPERATIONS: Operation[] = [
  {
    name: "execute `true`",
    target: FASTER_EXECUTE,
    run: async (backend) => (await backend.execute("true")).exitCode === 0,
  },
  {
    name: "execute `echo`",
    target: FASTER_EXECUTE,
    run: async (backend, turn) => (await backend.execute(`echo ${turn}`)).output === `${turn}\n`,
  },
  {
    name: "read",
    target: FASTER_FILES,
    run: async (backend, turn) =>
      String((await backend.read(`${ROOT}/f${turn % FILES}.py`)).content).includes("return 1"),
  },
  {
    name: "readRaw",
    target: FASTER_FILES,
    run: async (backend, turn) =>
      String((await backend.readRaw(`${ROOT}/f${turn % FILES}.py`)).data?.content).includes("return 1"),
  },
  {
    name: "write",
    target: FASTER_FILES,
    run: async (backend, turn) =>
      (await backend.write(`${ROOT}/new-${turn}.txt`, "text\n".repeat(20))).error === undefined,
  },
  {
    name: "edit",
    target: FASTER_FILES,
    run: async (backend, turn) =>
      (await backend.edit(`${ROOT}/counter`, `<${turn}>`, `<${turn + 1}>`)).occurrences === 1,
  },
  {
    name: "delete",
    target: FASTER_FILES,
    run: async (backend, turn) => (await backend.delete(`${ROOT}/new-${turn}.txt`)).error === undefined,
  },
  {
    name: "ls",
    target: FASTER_FILES,
    run: async (backend) => (await backend.ls(`${ROOT}/tree`)).files?.length === FILES,
  },
  {
    name: "glob",
    target: FASTER_FILES,
    run: async (backend) => (await backend.glob("**/*.py", `${ROOT}/tree`)).files?.length === FILES,
  },
  {
    name: "grep",
    target: FASTER_FILES,
    run: async (backend) => (await backend.grep("needle", `${ROOT}/tree`)).matches?.length === FILES,
  },
  {
    name: "upload 3 files",
    target: FASTER_FILES,
    run: async (backend, turn) => {
      const files = THREE.map((file): [string, Uint8Array] => [`${ROOT}/up-${turn}-${file}`, Buffer.alloc(1000, "x")]);
      return (await backend.uploadFiles(files)).every(({ error }) => error === null);
    },
  },
  {
    name: "download 3 files",
    target: FASTER_FILES,
    run: async (backend) => {
      const got = await backend.downloadFiles(THREE.map((file) => `${ROOT}/f${file}.py`));
      return got.every(({ content }) => content !== null && Buffer.from(content).includes("return 1"));
    },
  },
];

/** Creates the same files for each backend. */
async function prepare(backend: BaseSandbox): Promise<void> {
  const source = "def f():\\n    return 1  # needle\\n";
  const { exitCode, output } = await backend.execute(
    `mkdir -p ${ROOT}/tree && cd ${ROOT} && printf '<0>' > counter && for i in $(seq 0 ${FILES - 1}); do ` +
      `printf '${source}' > f$i.py; printf '${source}' > tree/f$i.py; done`,
  );
  if (exitCode !== 0) {
    throw new Error(`can't create the files: ${output}`);
  }
}

await using ours = await podbay(IMAGE, NAMESPACE);
await using theirs = await ExecSandbox.create(IMAGE, NAMESPACE);
const sides: [string, BaseSandbox, Map<string, number[]>][] = [
  ["podbay", ours, new Map()],
  ["scripts", theirs, new Map()],
];
for (const [, backend] of sides) {
  await prepare(backend);
}
for (let turn = 0; turn < TURNS; turn++) {
  for (const { name, run } of OPERATIONS) {
    for (const [side, backend, times] of sides) {
      const [right, milliseconds] = await timed(() => run(backend, turn));
      if (!right) {
        throw new Error(`${side}: ${name} has a wrong result`);
      }
      times.set(name, [...(times.get(name) ?? []), milliseconds]);
    }
  }
}

const rows = [row("operation", "backend", "min", "p50", "p95", "n", "podbay is faster by")];
rows.push(row("---", "---", "---:", "---:", "---:", "---:", "---:"));
const missed: string[] = [];
for (const { name, target } of OPERATIONS) {
  const p50 = sides.map(([, , times]) => figures(times.get(name) ?? [])[1]);
  const ratio = (p50[1] ?? 0) / (p50[0] ?? 1);
  for (const [index, [side, , times]] of sides.entries()) {
    const cells = figures(times.get(name) ?? []).map((milliseconds) => milliseconds.toFixed(2));
    rows.push(row(name, side, ...cells, TURNS, index === 0 ? "" : `${ratio.toFixed(0)} x`));
  }
  if (ratio < target) {
    missed.push(`${name}: ${ratio.toFixed(1)} x scripts, target ${target} x`);
  }
}
console.log(`\n## Operations on small files, ${FILES} per directory (milliseconds)\n\n${rows.join("\n")}`);
const binding = await overhead();
console.log(`\n## Overhead of the binding on a local sandbox (microseconds)\n\n${binding.table}`);
missed.push(...binding.missed);
if (missed.length > 0) {
  console.log(`\nMissed targets:\n\n${missed.map((miss) => `- ${miss}`).join("\n")}`);
}
