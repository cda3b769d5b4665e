/** Times, and what to say about them. */

/** Runs something, and returns its result and how many milliseconds it took. */
export async function timed<T>(work: () => Promise<T>): Promise<[T, number]> {
  const begun = performance.now();
  const result = await work();
  return [result, performance.now() - begun];
}

/** Minimum, p50 and p95. */
export function figures(times: readonly number[]): [number, number, number] {
  const sorted = times.toSorted((one, other) => one - other);
  const at = (part: number) => sorted[Math.round(part * (sorted.length - 1))] ?? Number.NaN;
  return [at(0), at(0.5), at(0.95)];
}

/** A row of a table. */
export function row(...cells: (string | number)[]): string {
  return `| ${cells.join(" | ")} |`;
}
