/**
 * The binding's overhead: the time that JavaScript sees, minus the time that the core needs for the operation. The core's time is
 * in the audit log, but writing the log takes time too. So each call is made twice in a row: in a sandbox without a log, which is
 * timed, and in one with a log, which tells the core's time. The overhead is the difference of the two medians.
 */

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Sandbox } from "podbay";
import { figures, row, timed } from "./measure.js";

const COUNT = 2000;

/** What a call may cost, in milliseconds. */
const TARGET = 0.15;

/** How long each recorded operation took, in milliseconds. */
async function recorded(log: string): Promise<number[]> {
  const lines = (await readFile(log, "utf8")).trimEnd().split("\n");
  const entries = lines.map((line) => JSON.parse(line) as { duration_us?: number });
  return entries.flatMap(({ duration_us }) => (duration_us === undefined ? [] : [duration_us / 1000]));
}

/** Measures the operations that agents use most. Returns a table, and the missed targets. */
export async function overhead(): Promise<{ table: string; missed: string[] }> {
  const directory = await mkdtemp(join(tmpdir(), "podbay-bench-"));
  const log = join(directory, "audit.jsonl");
  const [plain, logged] = [await Sandbox.create(), await Sandbox.create({ auditLog: log })];
  const text = "line of text\n".repeat(300);
  for (const sandbox of [plain, logged]) {
    await sandbox.write("file", text);
  }
  const operations: [string, (sandbox: Sandbox) => Promise<unknown>][] = [
    ["read", (sandbox) => sandbox.read("file")],
    ["write", (sandbox) => sandbox.write("written", text)],
    ["stat", (sandbox) => sandbox.stat("file")],
    ["ls", (sandbox) => sandbox.ls()],
    ["run `true`", (sandbox) => sandbox.run("true")],
  ];
  const rows = [row("operation", "total: min", "p50", "p95", "core: p50", "overhead", "n"), row(...dashes(7))];
  const missed: string[] = [];
  for (const [name, call] of operations) {
    const seen: number[] = [];
    for (let count = 0; count < COUNT; count++) {
      seen.push((await timed(() => call(plain)))[1]);
      await call(logged);
    }
    const inside = (await recorded(log)).slice(-COUNT);
    const [total, core] = [figures(seen), figures(inside)[1]];
    const overhead = total[1] - core;
    const cells = [...total, core, overhead].map((milliseconds) => (1000 * milliseconds).toFixed(0));
    rows.push(row(name, ...cells, COUNT));
    if (overhead > TARGET) {
      missed.push(`overhead of ${name}: ${overhead.toFixed(2)} ms, target ${TARGET} ms`);
    }
  }
  await plain.close();
  await logged.close();
  await rm(directory, { recursive: true });
  return { table: rows.join("\n"), missed };
}

function dashes(columns: number): string[] {
  return Array.from({ length: columns }, (_, index) => (index === 0 ? "---" : "---:"));
}
