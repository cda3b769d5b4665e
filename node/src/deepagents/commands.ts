/** Converts results of commands to those of Deep Agents. */

import type { ExecuteResponse } from "deepagents";
import { text as decode } from "../operation.js";
import type { ExecResult } from "../results.js";
import { DENIED_EXIT, text } from "./failures.js";

/** The size of the first file of a command's log. Later output is in further files. */
const LOG_FILE = 16 << 20;

/** How a command ended, and what to say about it. */
function outcome(result: ExecResult, timeout: number): { exitCode: number | null; note?: string } {
  const exitCode = result.exitCode ?? null;
  if (result.info.state === "lost") {
    const note = "Error: the outcome of the command is unknown, because its supervisor died. It wasn't run again.";
    return { exitCode: null, note };
  }
  if (result.info.state === "failed") {
    const reason = result.info.error === undefined ? "no reason was given" : text(result.info.error);
    return { exitCode: DENIED_EXIT, note: `Error: the command couldn't be started: ${reason}` };
  }
  if (result.timedOut) {
    return { exitCode, note: `Command timed out after ${timeout} seconds` };
  }
  if (result.outOfMemory) {
    return { exitCode, note: "Command ran out of memory: the kernel killed one of its processes" };
  }
  return result.signal === undefined ? { exitCode } : { exitCode, note: `Command was killed by ${result.signal}` };
}

/** The output, with a line in place of bytes that were left out. */
function withGap(result: ExecResult): string {
  if (result.cutAt === undefined) {
    return result.output;
  }
  // The file in the sandbox that has the full output, if one file has all of it.
  const complete = result.info.droppedBytes === 0 && result.outputBytes <= LOG_FILE;
  const where = complete ? `; full output in ${result.info.log}` : "";
  const gap = `\n... [${result.dropped} bytes omitted here${where}] ...\n`;
  return decode(result.raw.subarray(0, result.cutAt)) + gap + decode(result.raw.subarray(result.cutAt));
}

/** Converts a command's result. If its output was too long, the middle is missing. */
export function response(result: ExecResult, timeout: number): ExecuteResponse {
  const { exitCode, note } = outcome(result, timeout);
  const output = withGap(result);
  const separator = output === "" || output.endsWith("\n") ? "" : "\n";
  const said = note === undefined ? output : `${output}${separator}${note}`;
  return { output: said, exitCode, truncated: result.truncated };
}
