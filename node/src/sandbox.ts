/** `Sandbox`: a computer for an agent. */

import { Exec } from "./exec.js";
import { described } from "./failure.js";
import type { WriteResult } from "./file-contents.js";
import FileOperations from "./files.js";
import type { NativeSandbox } from "./native-types.js";
import { type Abortable, bytes, call } from "./operation.js";
import { open, own, type SandboxOptions } from "./options.js";
import {
  type CommandInfo,
  commandInfo,
  type DownloadResult,
  ExecResult,
  type Progress,
  type ProtectionReport,
  type Transferred,
  type UploadResult,
  type Welcome,
  withError,
} from "./results.js";

/** Options of `upload`. */
export interface UploadOptions extends Abortable {
  /** Fail for paths that exist. */
  createOnly?: boolean | undefined;
}

/** Options of transfers between this machine and a sandbox. */
export interface TransferOptions extends Abortable {
  /** Told of progress. If it throws, the transfer stops and fails with what it threw. */
  progress?: ((progress: Progress) => void) | undefined;
}

/** Options of commands that are started. */
export interface CommandOptions extends Abortable {
  /** Seconds, enforced in the sandbox. Default: 300; 0 for no limit. */
  timeout?: number | undefined;
  /** The working directory. */
  cwd?: string | undefined;
  /** Environment variables. */
  env?: Record<string, string> | undefined;
  /** Send both streams through one pipe, so that their order is exact. */
  merge?: boolean | undefined;
}

/** Options of `run`. */
export interface RunOptions extends CommandOptions {
  /** The command's standard input; empty by default. */
  stdin?: string | Uint8Array | undefined;
  /** How many bytes of output to return; beginning and end are kept. Default: 1 MiB. */
  outputLimit?: number | undefined;
}

/** Options of `start` and `stream`. */
export interface StartOptions extends CommandOptions {
  /** Keep standard input open for `Exec.write`. */
  stdin?: boolean | undefined;
}

/** A shell command line, or a program and its arguments. */
export type CommandLine = string | readonly string[];

function line(command: CommandLine): string | string[] {
  return typeof command === "string" ? command : [...command];
}

/** Runs a transfer whose progress function may stop it. */
async function transfer<T>(
  { signal, progress }: TransferOptions,
  start: (progress: ((progress: Progress) => void) | undefined, signal: AbortSignal | undefined) => Promise<T>,
): Promise<T> {
  if (progress === undefined) {
    return start(undefined, signal);
  }
  const failed = new AbortController();
  const report = (now: Progress) => {
    try {
      progress(now);
    } catch (failure) {
      failed.abort(failure);
    }
  };
  const either = signal === undefined ? failed.signal : AbortSignal.any([signal, failed.signal]);
  return start(report, either);
}

/**
 * A computer for an agent: files and commands, isolated from everything else.
 *
 * The sandbox is created on first use. `close()`, and the end of an `await using` block, delete it if this object created
 * it. In mode "local", a sandbox with neither an id nor a thread ends with this object, or at the latest with this process.
 */
export class Sandbox extends FileOperations implements AsyncDisposable {
  readonly #native: NativeSandbox;

  constructor(options?: SandboxOptions);
  /** @internal */
  constructor(options: SandboxOptions | undefined, native: NativeSandbox);
  constructor(options: SandboxOptions = {}, native: NativeSandbox = open(options)) {
    super(native);
    this.#native = native;
  }

  /** Creates or finds a sandbox now. */
  static create(options: SandboxOptions & Abortable = {}): Promise<Sandbox> {
    const { signal, ...rest } = options;
    return new Sandbox(rest).open({ signal });
  }

  /** The sandbox's id, with which any process can find it again. */
  get id(): string {
    return this.#native.id;
  }

  /** "local", "raw" or "agent-sandbox". */
  get mode(): string {
    return this.#native.mode;
  }

  /** Whether this object created the sandbox (true) or found it (false); undefined before it is first used. */
  get created(): boolean | undefined {
    return this.#native.created ?? undefined;
  }

  /** Whether it replaces an earlier sandbox of the same thread that has ended, and whose files are gone. */
  get replaced(): boolean {
    return this.#native.replaced;
  }

  /** Whether this object is closed. */
  get closed(): boolean {
    return this.#native.closed;
  }

  /** Creates or finds the sandbox now, and returns this object. */
  async open(options: Abortable = {}): Promise<this> {
    await call(options.signal, (cancel) => this.#native.open(cancel));
    return this;
  }

  /** Deletes the sandbox if this object created it, and only disconnects otherwise. Closing again does nothing. */
  close(): Promise<void> {
    return call(undefined, () => this.#native.close());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Deletes the sandbox, whoever created it. Returns whether there was one. */
  destroy(): Promise<boolean> {
    return call(undefined, () => this.#native.destroy());
  }

  /** Returns the sandbox's working directory, podbayd version and activity. */
  hello(options: Abortable = {}): Promise<Welcome> {
    return call(options.signal, (cancel) => this.#native.hello(cancel));
  }

  /** Returns how commands in the sandbox are kept from interfering with podbayd. */
  protections(options: Abortable = {}): Promise<ProtectionReport> {
    return call(options.signal, (cancel) => this.#native.protections(cancel));
  }

  /** Writes many files concurrently. Returns one result per file, in order; a file that fails doesn't throw. */
  async upload(
    files: Iterable<readonly [string, string | Uint8Array]>,
    { signal, createOnly = false }: UploadOptions = {},
  ): Promise<UploadResult[]> {
    const all = Array.from(files, ([path, content]): [string, Uint8Array] => [path, bytes(content)]);
    return (await call(signal, (cancel) => this.#native.upload(all, createOnly, cancel))).map(withError);
  }

  /** Reads many files concurrently. Returns one result per path, in order; a file that fails doesn't throw. */
  async download(paths: Iterable<string>, { signal }: Abortable = {}): Promise<DownloadResult[]> {
    return (await call(signal, (cancel) => this.#native.download([...paths], cancel))).map(withError);
  }

  /** Uploads a file from this machine, of any size. */
  uploadFile(local: string, path: string, options: TransferOptions = {}): Promise<WriteResult> {
    return transfer(options, (progress, signal) =>
      call(signal, (cancel) => this.#native.uploadFile(local, path, progress, cancel)),
    );
  }

  /** Downloads a file of any size to this machine. It appears under its name once it is complete. Returns its size. */
  downloadFile(path: string, local: string, options: TransferOptions = {}): Promise<number> {
    return transfer(options, (progress, signal) =>
      call(signal, (cancel) => this.#native.downloadFile(path, local, progress, cancel)),
    );
  }

  /** Uploads a directory from this machine, recursively. Existing files are replaced; other files in the target stay. */
  async uploadTree(local: string, path: string, options: TransferOptions = {}): Promise<Transferred> {
    const done = await transfer(options, (progress, signal) =>
      call(signal, (cancel) => this.#native.uploadTree(local, path, progress, cancel)),
    );
    return { ...done, failed: done.failed.map(({ path, error }) => ({ path, error: described(error) })) };
  }

  /** Downloads a directory recursively into a directory on this machine, which is created if necessary. */
  async downloadTree(path: string, local: string, options: TransferOptions = {}): Promise<Transferred> {
    const done = await transfer(options, (progress, signal) =>
      call(signal, (cancel) => this.#native.downloadTree(path, local, progress, cancel)),
    );
    return { ...done, failed: done.failed.map(({ path, error }) => ({ path, error: described(error) })) };
  }

  /** Runs a command and waits for it to end. A command that fails doesn't throw; its result says so. */
  async run(command: CommandLine, options: RunOptions = {}): Promise<ExecResult> {
    const { signal, stdin, outputLimit, ...rest } = options;
    const input = stdin === undefined ? undefined : bytes(stdin);
    return new ExecResult(
      await call(signal, (cancel) => this.#native.run(line(command), own(rest), input, outputLimit, cancel)),
    );
  }

  /** Starts a command and follows its events. Aborting the signal kills the command. */
  async stream(command: CommandLine, { signal, ...options }: StartOptions = {}): Promise<Exec> {
    return new Exec(await call(signal, (cancel) => this.#native.stream(line(command), own(options), cancel)), signal);
  }

  /** Follows a command that was started earlier, from an offset in its output. */
  async attach(id: string, offset = 0, { signal }: Abortable = {}): Promise<Exec> {
    return new Exec(await call(signal, (cancel) => this.#native.attach(id, offset, cancel)), signal);
  }

  /** Starts a command in the background. Pass its id to `attach`, `status` or `kill`. */
  async start(command: CommandLine, { signal, ...options }: StartOptions = {}): Promise<CommandInfo> {
    return commandInfo(await call(signal, (cancel) => this.#native.start(line(command), own(options), cancel)));
  }

  /** Returns a command's current state. */
  async status(id: string, { signal }: Abortable = {}): Promise<CommandInfo> {
    return commandInfo(await call(signal, (cancel) => this.#native.status(id, cancel)));
  }

  /** Lists commands, oldest first. With `running`, only those that have running processes. */
  async commands({ signal, running = false }: Abortable & { running?: boolean } = {}): Promise<CommandInfo[]> {
    return (await call(signal, (cancel) => this.#native.commands(running, cancel))).map(commandInfo);
  }

  /** Sends a signal to all processes of a command, or with `main` only to its first one. Returns how many got it. */
  signal(id: string, number: number, options: Abortable & { main?: boolean } = {}): Promise<number> {
    const { signal, main = false } = options;
    return call(signal, (cancel) => this.#native.signal(id, number, main, cancel));
  }

  /** Kills all processes of a command. Returns how many there were. */
  kill(id: string, { signal }: Abortable = {}): Promise<number> {
    return call(signal, (cancel) => this.#native.kill(id, cancel));
  }
}
