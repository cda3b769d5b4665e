/**
 * The binding's overhead: the time that JavaScript sees, minus the time that the audit log has for the operation. It includes
 * writing the line of the audit log, so the numbers are upper bounds.
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
  const sandbox = await Sandbox.create({ auditLog: log });
  const text = "line of text\n".repeat(300);
  await sandbox.write("file", text);
  const operations: [string, () => Promise<unknown>][] = [
    ["read", () => sandbox.read("file")],
    ["write", () => sandbox.write("written", text)],
    ["stat", () => sandbox.stat("file")],
    ["ls", () => sandbox.ls()],
    ["run `true`", () => sandbox.run("true")],
  ];
  const rows = [row("operation", "total: min", "p50", "p95", "overhead: min", "p50", "p95", "n"), row(...dashes(8))];
  const missed: string[] = [];
  for (const [name, call] of operations) {
    const seen: number[] = [];
    for (let count = 0; count < COUNT; count++) {
      seen.push((await timed(call))[1]);
    }
    const inside = (await recorded(log)).slice(-COUNT);
    const added = figures(seen.map((total, index) => total - (inside[index] ?? 0)));
    const cells = [...figures(seen), ...added].map((milliseconds) => (1000 * milliseconds).toFixed(0));
    rows.push(row(name, ...cells, COUNT));
    if (added[1] > TARGET) {
      missed.push(`overhead of ${name}: ${added[1].toFixed(2)} ms, target ${TARGET} ms`);
    }
  }
  await sandbox.close();
  await rm(directory, { recursive: true });
  return { table: rows.join("\n"), missed };
}

function dashes(columns: number): string[] {
  return Array.from({ length: columns }, (_, index) => (index === 0 ? "---" : "---:"));
}
