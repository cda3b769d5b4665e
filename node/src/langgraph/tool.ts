/** A sandbox as a tool: each call runs Python in a fresh sandbox, with a copy of the agent's virtual files. */

import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, posix } from "node:path";
import { type StructuredToolInterface, tool } from "@langchain/core/tools";
import { PodbayError } from "../errors.js";
import type { PodbayOptions } from "../options.js";
import { Podbay } from "../podbay.js";
import type { ExecResult } from "../results.js";
import { Sandbox } from "../sandbox.js";

/** The directory of the virtual files, and the working directory of the code. */
export const UPLOAD_DIR = "/app";

/** Text to append to the system prompt of an agent that has the tool. */
export const PROMPT_SUFFIX =
  "\n\nYou have a tool `execute_python(code)`. It runs Python 3 in a fresh sandbox: nothing (variables, files, " +
  "installed packages) is kept from one call to the next, so do everything that belongs together in one call and " +
  "print what you want to know. Before each call your virtual files are copied to `/app/`, the working directory: " +
  "`data.csv` becomes `/app/data.csv`. The result is `exit=<code>`, followed by everything that was printed.";

const DESCRIPTION =
  "Runs Python 3 code in a fresh sandbox, with your virtual files in /app (the working directory), and returns " +
  "`exit=<code>` and everything that was printed. Nothing is kept between calls.";

/** How many seconds a sandbox may live beyond the timeout of the code: for its start, and for uploading large files. */
const SPARE = 600;

const SCHEMA = {
  type: "object",
  properties: { code: { type: "string", description: "The Python code to run." } },
  required: ["code"],
  additionalProperties: false,
} as const;

/** Options of the tool: settings of the sandboxes, and how the code runs. */
export interface ExecutePythonOptions extends PodbayOptions {
  /** The tool's name. Default: `execute_python`. */
  name?: string | undefined;
  /** What the model is told about the tool. */
  description?: string | undefined;
  /** The interpreter. Default: `python3`. */
  python?: string | undefined;
  /** Seconds that the code may take; 0 means no limit. Default: 300. */
  timeout?: number | undefined;
  /** How many bytes of output to return. Default: 1 MiB. */
  outputLimit?: number | undefined;
}

/** A virtual file: what Deep Agents keeps in its state, or just its content. */
export type VirtualFile = string | Uint8Array | { content: string | readonly string[] | Uint8Array };

function target(path: string): string {
  const below = path === UPLOAD_DIR || path.startsWith(`${UPLOAD_DIR}/`) ? path.slice(UPLOAD_DIR.length) : path;
  const placed = posix.normalize(`${UPLOAD_DIR}/${below.replace(/^\/+/, "")}`);
  if (!placed.startsWith(`${UPLOAD_DIR}/`) || placed.includes("\0")) {
    throw new PodbayError(
      `the virtual file '${path}' is outside of ${UPLOAD_DIR}: use a path below it`,
      "invalid_path",
    );
  }
  return placed;
}

/** Converts virtual files to the files of the sandbox: absolute paths below `/app`, and their contents. */
export function seedFiles(files: Record<string, VirtualFile> | undefined): [string, string | Uint8Array][] {
  return Object.entries(files ?? {}).map(([path, file]) => {
    const content = typeof file === "string" || file instanceof Uint8Array ? file : file.content;
    const whole = typeof content === "string" || content instanceof Uint8Array ? content : content.join("\n");
    return [target(path), whole];
  });
}

/** A fresh sandbox with a writable /app, and what deletes both. */
type Fresh = (signal: AbortSignal | undefined) => Promise<{ sandbox: Sandbox; end: () => Promise<void> }>;

function fresh(settings: PodbayOptions, ttl: number | string): Fresh {
  const podbay = new Podbay(settings);
  if (podbay.mode !== "local") {
    // The working directory is a volume that the sandbox's user can write to, whoever owns the image's /app.
    const pods = new Podbay({ workdir: UPLOAD_DIR, ...settings });
    return async (signal) => {
      const sandbox = pods.sandbox({ ttl });
      await opened(sandbox, signal);
      return { sandbox, end: () => sandbox.close() };
    };
  }
  return async (signal) => {
    // A mount, because the root of a sandbox on this machine is read-only. Its path must not contain symbolic links.
    const directory = await mkdtemp(join(await realpath(tmpdir()), "podbay-app-"));
    const mounts = [...(settings.mounts ?? []), `${directory}:${UPLOAD_DIR}:rw`];
    const sandbox = new Sandbox({ ...settings, ttl, mounts });
    const end = async () => {
      await sandbox.close();
      await rm(directory, { recursive: true, force: true });
    };
    try {
      await opened(sandbox, signal);
    } catch (failure) {
      await end();
      throw failure;
    }
    return { sandbox, end };
  };
}

/** Creates a sandbox, or deletes what was created of it. */
async function opened(sandbox: Sandbox, signal: AbortSignal | undefined): Promise<void> {
  try {
    await sandbox.open({ signal });
  } catch (failure) {
    await sandbox.close();
    throw failure;
  }
}

function answer(result: ExecResult): string {
  let notes = "";
  if (result.timedOut) {
    notes += "\n[The code timed out and was killed.]";
  } else if (result.outOfMemory) {
    notes += "\n[The code ran out of memory.]";
  }
  if (result.truncated) {
    notes += "\n[The middle of the output was omitted.]";
  }
  return `exit=${result.exitCode ?? "unknown"}\n${result.output}${notes}`;
}

/**
 * Returns a LangChain tool that runs Python code in a fresh sandbox. Each call creates a sandbox, copies the state's `files`
 * into it, runs the code and deletes the sandbox, also when the run is aborted. Failures of the sandbox are reported to the
 * model in the same format as results.
 */
export function executePythonTool(options: ExecutePythonOptions = {}): StructuredToolInterface {
  const { name, description, python = "python3", timeout = 300, outputLimit, ttl, ...settings } = options;
  // Ends the sandbox if this process is killed and can't delete it.
  const create = fresh(settings, ttl ?? timeout + SPARE);
  const run = async (code: string, files: Record<string, VirtualFile> | undefined, signal?: AbortSignal) => {
    const seeds = seedFiles(files);
    const { sandbox, end } = await create(signal);
    try {
      for (const { error } of await sandbox.upload(seeds, { signal })) {
        if (error !== undefined) {
          throw error;
        }
      }
      // Unbuffered, so that output and errors appear in the order in which they were printed.
      const how = { stdin: code, cwd: UPLOAD_DIR, timeout, outputLimit, merge: true, signal };
      return answer(await sandbox.run([python, "-u", "-"], how));
    } finally {
      await end();
    }
  };
  const work = async (input: unknown, config?: { state?: unknown; signal?: AbortSignal }): Promise<string> => {
    const state = config?.state as { files?: Record<string, VirtualFile> } | undefined;
    try {
      return await run((input as { code: string }).code, state?.files, config?.signal);
    } catch (failure) {
      if (failure instanceof PodbayError) {
        return `exit=1\nThe sandbox couldn't run the code: ${failure.message}`;
      }
      throw failure;
    }
  };
  return tool(work, { name: name ?? "execute_python", description: description ?? DESCRIPTION, schema: SCHEMA });
}
