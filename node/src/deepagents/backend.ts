/** The backend: the methods that Deep Agents calls, each one request to a sandbox. */

import {
  BaseSandbox,
  type DeleteResult,
  type EditResult,
  type ExecuteResponse,
  type FileDownloadResponse,
  type FileUploadResponse,
  type GlobResult,
  type GrepResult,
  type LsResult,
  normalizeReadPagination,
  type ReadRawResult,
  type ReadResult,
  SandboxError,
  type WriteResult,
} from "deepagents";
import { ConfigError } from "../errors.js";
import { type Abortable, text } from "../operation.js";
import type { PodbayOptions, SandboxOptions } from "../options.js";
import { Manager, Podbay } from "../podbay.js";
import type { UploadResult } from "../results.js";
import { Sandbox } from "../sandbox.js";
import * as commands from "./commands.js";
import { SandboxPerThread, SingleSandbox } from "./conversations.js";
import * as failures from "./failures.js";
import { isMedia, mimeType } from "./mime.js";
import { requiredThreadId, runConfig } from "./run.js";

/** What Deep Agents shows for a file without contents; its middleware compares the whole text. */
const EMPTY = "System reminder: File exists but has empty contents";

/** The largest media file that the `read_file` tool accepts. */
const MAX_MEDIA_BYTES = 10 << 20;

const DEFAULT_TIMEOUT = 300;

/** Options of `PodbaySandbox`: those of a sandbox, and how it is used. */
export interface PodbaySandboxOptions extends SandboxOptions {
  /** An existing sandbox to use. Deleting it is then up to you. */
  sandbox?: Sandbox | undefined;
  /** Where the threads' sandboxes come from; implies `perThread`. */
  manager?: Manager | undefined;
  /**
   * One object serves every conversation: each call goes to the sandbox of the `thread_id` in the current run's config. These
   * sandboxes outlive the program; `ttl`, `idleTtl` or `release` ends them.
   */
  perThread?: boolean | undefined;
  /** Seconds that a command without a timeout of its own may take; 0 means no limit. Default: 300. */
  timeout?: number | undefined;
  /** How many bytes of a command's output are returned; its beginning and end are kept. Default: 1 MiB. */
  outputLimit?: number | undefined;
  /** Files to write when the sandbox is created. Relative paths start at the working directory. */
  initialFiles?: Record<string, string | Uint8Array> | undefined;
}

/** Options of `PodbaySandbox.execute`, for callers other than Deep Agents. */
export interface ExecuteOptions extends Abortable {
  /** Seconds; 0 means no limit. */
  timeout?: number | undefined;
}

/**
 * A Deep Agents backend that works in a sandbox.
 *
 * `await PodbaySandbox.create()` runs on this machine, with `{ mode: "raw", image: "python:3.12-slim", namespace: "agents" }`
 * in a pod. `close()`, and the end of an `await using` block, delete the sandbox if this object created it.
 *
 * Operations never reject: failures are part of their results. A run that is aborted ends its command in the sandbox.
 */
export class PodbaySandbox extends BaseSandbox implements AsyncDisposable {
  readonly #source: SingleSandbox | SandboxPerThread;
  readonly #timeout: number;
  readonly #outputLimit: number | undefined;
  readonly #initialFiles: Record<string, string | Uint8Array>;
  readonly #owned: boolean;
  #initialized = false;

  constructor(options: PodbaySandboxOptions = {}) {
    super();
    const { sandbox, manager, perThread, timeout, outputLimit, initialFiles, ...settings } = options;
    this.#timeout = seconds(timeout ?? DEFAULT_TIMEOUT);
    this.#outputLimit = outputLimit;
    this.#initialFiles = initialFiles ?? {};
    this.#owned = sandbox === undefined;
    const { id, thread, tenant, labels, leashed, ...rest } = settings;
    const given = Object.entries({ labels, leashed, ...rest }).filter(([, value]) => value !== undefined);
    if ((sandbox !== undefined || manager !== undefined) && given.length > 0) {
      const names = given.map(([name]) => name).join(", ");
      throw new ConfigError(
        `${names}: pass settings to the sandbox or manager itself, because an existing one was given`,
      );
    }
    if (perThread === true || manager !== undefined) {
      if (sandbox !== undefined || id !== undefined || thread !== undefined) {
        throw new ConfigError("perThread uses the sandbox of the current thread: pass neither sandbox, id nor thread");
      }
      if (initialFiles !== undefined) {
        throw new ConfigError(
          "perThread has no sandbox to write initialFiles to: write them in the thread's first run",
        );
      }
      this.#source = new SandboxPerThread(manager ?? new Manager(rest as PodbayOptions, { labels }), tenant ?? "");
    } else {
      this.#source = new SingleSandbox(sandbox ?? new Sandbox(settings));
    }
  }

  /** Creates the sandbox, or finds the one with the given id or thread, and writes `initialFiles`. */
  static async create(options: PodbaySandboxOptions & Abortable = {}): Promise<PodbaySandbox> {
    const { signal, ...rest } = options;
    const backend = new PodbaySandbox(rest);
    await backend.initialize({ signal });
    return backend;
  }

  /** Uses an existing sandbox, or rejects with `SandboxNotFound`. `close` doesn't delete it. */
  static async fromId(
    id: string,
    options: Omit<PodbaySandboxOptions, "id" | "thread" | "tenant" | "sandbox" | "perThread" | "manager"> = {},
  ): Promise<PodbaySandbox> {
    const { timeout, outputLimit, initialFiles, labels: _, leashed: __, ...settings } = options;
    const sandbox = await new Podbay(settings as PodbayOptions).reconnect(id);
    return PodbaySandbox.create({ sandbox, timeout, outputLimit, initialFiles });
  }

  /** The sandbox's id, with which another process can use the same sandbox. */
  get id(): string {
    return this.#source.id;
  }

  /** The sandbox itself, with all its operations. */
  get instance(): Sandbox {
    if (this.#source instanceof SandboxPerThread) {
      throw new SandboxError("a backend with perThread has a sandbox for each thread", "NOT_INITIALIZED");
    }
    return this.#source.only;
  }

  /** Whether the sandbox was created or found, and isn't closed. */
  get isRunning(): boolean {
    if (this.#source instanceof SandboxPerThread) {
      return this.#initialized;
    }
    return this.#source.only.created !== undefined && !this.#source.only.closed;
  }

  /** Creates or finds the sandbox now, and writes `initialFiles`. */
  async initialize(options: Abortable = {}): Promise<void> {
    if (this.#initialized) {
      throw new SandboxError("the sandbox is already initialized", "ALREADY_INITIALIZED");
    }
    this.#initialized = true;
    if (this.#source instanceof SandboxPerThread) {
      return;
    }
    try {
      await this.#source.only.open(options);
    } catch (failure) {
      this.#initialized = false;
      throw failure;
    }
    await this.#writeInitialFiles(this.#source.only, options);
  }

  async #writeInitialFiles(sandbox: Sandbox, options: Abortable): Promise<void> {
    const written = await sandbox.upload(Object.entries(this.#initialFiles), options);
    const failed = written.find((file) => file.error !== undefined);
    if (failed?.error !== undefined) {
      // Whoever called has no object with which to delete it.
      await this.close();
      const message = `can't write the initial file '${failed.path}': ${failures.text(failed.error)}`;
      throw new SandboxError(message, "FILE_OPERATION_FAILED", failed.error);
    }
  }

  /** Deletes the sandbox if this object created it. With `perThread` it only disconnects: the sandboxes stay. */
  async close(): Promise<void> {
    if (this.#source instanceof SandboxPerThread) {
      this.#initialized = false;
      this.#source.clear();
    } else if (this.#owned) {
      await this.#source.only.close();
    }
  }

  /** The same as `close`. */
  stop(): Promise<void> {
    return this.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Deletes the sandbox, whoever created it; with `perThread`, that of a thread. Resolves to whether there was one. */
  async release(thread?: string): Promise<boolean> {
    if (this.#source instanceof SingleSandbox) {
      return this.#source.only.destroy();
    }
    const of = thread ?? requiredThreadId("A backend with perThread");
    this.#source.forget(of);
    return this.#source.manager.release(of, this.#source.tenant);
  }

  /**
   * Lets the next call get a new sandbox if the thread's sandbox has ended. Call this at the beginning of a turn. In the middle
   * of a turn a sandbox isn't replaced silently: the agent is told that its files are gone.
   */
  async refresh(): Promise<void> {
    if (this.#source instanceof SandboxPerThread) {
      await this.#source.refresh();
    }
  }

  /** Runs a command. Standard output and standard error are combined in the order in which they were written. */
  override async execute(command: string, options: ExecuteOptions = {}): Promise<ExecuteResponse> {
    const signal = options.signal ?? runConfig()?.signal;
    try {
      const timeout = seconds(options.timeout ?? this.#timeout);
      const sandbox = await this.#source.sandbox();
      const run = { timeout, merge: true, outputLimit: this.#outputLimit, signal };
      return commands.response(await sandbox.run(command, run), timeout);
    } catch (failure) {
      return failures.execute(this.#noted(failure), signal);
    }
  }

  /** Lists a directory. */
  override async ls(path: string): Promise<LsResult> {
    try {
      const found = await (await this.#source.sandbox()).ls(path || undefined);
      const files = found.entries.map((entry) => {
        const isDir = entry.isDir || entry.targetKind === "dir";
        const shown = printable(entry.path);
        return {
          path: isDir ? `${shown}/` : shown,
          is_dir: isDir,
          size: entry.size,
          modified_at: moment(entry.modified),
        };
      });
      return { files };
    } catch (failure) {
      return failures.ls(path, this.#noted(failure));
    }
  }

  /** Reads a page of a text file, or all of a media file. */
  override async read(filePath: string, offset = 0, limit = 500): Promise<ReadResult> {
    const page = normalizeReadPagination(offset, limit);
    try {
      const sandbox = await this.#source.sandbox();
      return isMedia(filePath) ? await media(sandbox, filePath) : await lines(sandbox, filePath, page);
    } catch (failure) {
      return failures.read(filePath, page.offset, this.#noted(failure));
    }
  }

  /** Reads a whole file. */
  override async readRaw(filePath: string): Promise<ReadRawResult> {
    try {
      const sandbox = await this.#source.sandbox();
      const [content, about] = await Promise.all([sandbox.readBytes(filePath), sandbox.stat(filePath)]);
      const modified = moment(about.modified);
      const data = {
        content: isMedia(filePath) ? content : text(content),
        mimeType: mimeType(filePath),
        // Most file systems don't tell when a file was created.
        created_at: modified,
        modified_at: modified,
      };
      return { data };
    } catch (failure) {
      return failures.read(filePath, 0, this.#noted(failure));
    }
  }

  /** Creates or replaces a file. The content of a media file is base64. */
  override async write(filePath: string, content: string): Promise<WriteResult> {
    try {
      const sandbox = await this.#source.sandbox();
      await sandbox.write(filePath, isMedia(filePath) ? Buffer.from(content, "base64") : content);
      return { path: filePath, filesUpdate: null };
    } catch (failure) {
      return failures.write(filePath, this.#noted(failure));
    }
  }

  /** Replaces text in a file. */
  override async edit(filePath: string, oldString: string, newString: string, replaceAll = false): Promise<EditResult> {
    try {
      const sandbox = await this.#source.sandbox();
      const fillEmpty = oldString === "";
      const done = await sandbox.edit(filePath, oldString, newString, { replaceAll, fillEmpty });
      return { path: filePath, filesUpdate: null, occurrences: done.occurrences };
    } catch (failure) {
      return failures.edit(filePath, oldString, this.#noted(failure));
    }
  }

  /** Deletes a file, a symbolic link, or a directory with its contents. */
  override async delete(filePath: string): Promise<DeleteResult> {
    try {
      await (await this.#source.sandbox()).delete(filePath);
      return { path: filePath, filesUpdate: null };
    } catch (failure) {
      return failures.remove(filePath, this.#noted(failure));
    }
  }

  /** Finds lines that contain a literal text, by default in the working directory. */
  override async grep(
    pattern: string,
    path?: string | null,
    glob?: string | null,
    maxCount?: number | null,
  ): Promise<GrepResult> {
    try {
      const sandbox = await this.#source.sandbox();
      const options = { glob: glob || undefined, maxCount: maxCount ?? undefined };
      const found = await sandbox.grep(pattern, path || undefined, options);
      const matches = found.matches.map((match) => ({
        path: printable(match.path),
        line: match.line,
        text: match.text,
      }));
      // Unreadable files alone don't mean that the search stopped early.
      const early = found.partial?.limitReached === true || found.partial?.reason === "budget";
      return early ? { matches, truncated: true } : { matches };
    } catch (failure) {
      return failures.search("grep", path ?? undefined, this.#noted(failure));
    }
  }

  /** Finds files and directories by name, by default in the working directory. Paths are relative to `path`. */
  override async glob(pattern: string, path?: string): Promise<GlobResult> {
    const absolute = pattern.startsWith("/");
    const [start, rest] = absolute ? anchored(pattern) : [path || undefined, pattern];
    try {
      const sandbox = await this.#source.sandbox();
      const options = { directories: true, dots: true, wholePath: true, limit: GLOB_LIMIT };
      const found = await sandbox.glob(rest, start, options);
      const files = found.matches.map((match) => ({
        // What is searched by an absolute pattern isn't below `path`.
        path: printable(absolute ? match.path : match.relative),
        is_dir: match.kind === "dir",
        size: match.size,
        modified_at: moment(match.modified),
      }));
      return found.partial === undefined ? { files } : { files, truncated: true };
    } catch (failure) {
      // A directory that is missing has no matches.
      const missing = ["not_found", "not_a_directory"].includes(failures.code(failure) ?? "");
      return missing ? { files: [] } : failures.search("glob", start, this.#noted(failure));
    }
  }

  /** Uploads files concurrently; each has its own result. */
  override async uploadFiles(files: Array<[string, Uint8Array]>): Promise<FileUploadResponse[]> {
    try {
      const sent = await this.#upload(files);
      return files.map(([path], index) => ({ path, error: this.#reason(sent[index]?.error) }));
    } catch (failure) {
      const error = this.#reason(failure);
      return files.map(([path]) => ({ path, error }));
    }
  }

  /** Downloads files concurrently; each has its own result. */
  override async downloadFiles(paths: string[]): Promise<FileDownloadResponse[]> {
    try {
      const got = await (await this.#source.sandbox()).download(paths);
      return paths.map((path, index) => ({
        path,
        content: got[index]?.content ?? null,
        error: this.#reason(got[index]?.error),
      }));
    } catch (failure) {
      const error = this.#reason(failure);
      return paths.map((path) => ({ path, content: null, error }));
    }
  }

  /** Begins an upload at once: the caller may change its bytes when this returns. */
  async #upload(files: Array<[string, Uint8Array]>): Promise<UploadResult[]> {
    if (this.#source instanceof SingleSandbox) {
      return this.#source.only.upload(files);
    }
    const copies = files.map(([path, bytes]): [string, Uint8Array] => [path, bytes.slice()]);
    return (await this.#source.sandbox()).upload(copies);
  }

  #reason(failure: unknown): FileUploadResponse["error"] {
    return failure === undefined ? null : failures.transfer(this.#noted(failure));
  }

  #noted(failure: unknown): unknown {
    this.#source.failed(failure);
    return failure;
  }
}

/** How many matches a glob returns: as many as Deep Agents looks at. */
const GLOB_LIMIT = 50_000;

/** The directory at which an absolute pattern begins, and the pattern below it. */
function anchored(pattern: string): [string, string] {
  const parts = pattern.split("/").filter((part) => part !== "");
  const wild = parts.findIndex((part) => /[*?[{]/.test(part));
  const depth = wild === -1 ? Math.max(parts.length - 1, 0) : wild;
  return [`/${parts.slice(0, depth).join("/")}`, parts.slice(depth).join("/")];
}

async function lines(
  sandbox: Sandbox,
  path: string,
  { offset, limit }: { offset: number; limit: number },
): Promise<ReadResult> {
  const page = await sandbox.read(path, { offset, limit, binaryByExtension: false });
  const mime = mimeType(path);
  if (page.empty) {
    return { content: EMPTY, mimeType: mime };
  }
  if (page.encoding === "binary") {
    return { error: `File '${path}' is not a text file (${page.size} bytes)` };
  }
  if (page.noLinesRequested) {
    return { content: "", mimeType: mime };
  }
  // An incomplete line belongs to the next page, unless it is all there is.
  const whole = page.firstLineCut ? page.content.length : page.content.length - page.partialLineBytes;
  const content = whole === page.content.length ? page.text : text(page.content.subarray(0, whole));
  const { totalLines, startLine, endLine, nextOffset } = page;
  return {
    content,
    mimeType: mime,
    ...(totalLines !== undefined && { totalLines }),
    ...(startLine !== undefined && { startLine }),
    ...(endLine !== undefined && { endLine }),
    ...(nextOffset !== undefined && { nextOffset }),
  };
}

async function media(sandbox: Sandbox, path: string): Promise<ReadResult> {
  const { size } = await sandbox.stat(path);
  if (size > MAX_MEDIA_BYTES) {
    return { error: `File '${path}' is ${size} bytes; at most ${MAX_MEDIA_BYTES} can be shown` };
  }
  return { content: await sandbox.readBytes(path), mimeType: mimeType(path) };
}

/** Replaces what isn't Unicode in a name: a provider would refuse the message that contains it. */
function printable(name: string): string {
  return name.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
}

function moment(milliseconds: number): string {
  const date = new Date(milliseconds);
  // A file can have any timestamp, also one that no calendar has.
  return Number.isNaN(date.getTime()) ? new Date(0).toISOString() : date.toISOString();
}

function seconds(timeout: number): number {
  if (!(timeout >= 0)) {
    throw new ConfigError(`timeout=${timeout} isn't a time: pass seconds, or 0 for no limit`);
  }
  return timeout;
}
