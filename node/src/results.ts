/**
 * Results of commands, transfers and providers; `files.ts` and `file-contents.ts` have those of file operations. Points in time
 * are milliseconds since 1970, as in `Date`; durations are seconds.
 */

import { CommandFailed } from "./errors.js";
import { described } from "./failure.js";
import type { WriteResult } from "./file-contents.js";
import type { NativeCommandInfo, NativeExecResult } from "./native-types.js";
import { text } from "./operation.js";

/** The outcome of uploading one file. */
export interface UploadResult {
  /** The path, as it was passed in. */
  readonly path: string;
  /** The result of the write; absent if it failed. */
  readonly result?: WriteResult;
  /** Why the file couldn't be written. */
  readonly error?: Error;
}

/** The outcome of downloading one file. */
export interface DownloadResult {
  /** The path, as it was passed in. */
  readonly path: string;
  /** The file's contents; absent if the download failed. */
  readonly content?: Uint8Array;
  /** Why the file couldn't be downloaded. */
  readonly error?: Error;
}

/** The outcome of transferring a directory. */
export interface Transferred {
  /** How many files were transferred. */
  readonly files: number;
  /** What was skipped, and why. */
  readonly skipped: { readonly path: string; readonly reason: string }[];
  /** What failed. */
  readonly failed: { readonly path: string; readonly error: Error }[];
}

/** The progress of a transfer. */
export interface Progress {
  /** How many files have been transferred. */
  readonly files: number;
  /** How many bytes have been transferred. */
  readonly bytes: number;
  /** How many files there are, once that is known. */
  readonly totalFiles?: number;
  /** How many bytes there are, once that is known. */
  readonly totalBytes?: number;
}

/** A process that a command started. */
export interface Process {
  /** Its pid inside the sandbox. */
  readonly pid: number;
  /** Its name, as reported by the kernel. */
  readonly name: string;
}

/** A command, as listed by `Sandbox.commands`. */
export interface CommandInfo {
  /** Its id. */
  readonly id: string;
  /** The command on one line. */
  readonly command: string;
  /** When it was started, by the sandbox's clock. */
  readonly started: number;
  /** `failed`: it couldn't be started. `lost`: the outcome is unknown. */
  readonly state: "running" | "exited" | "failed" | "lost";
  /** The exit code, once it has exited. */
  readonly exitCode?: number;
  /** The signal that killed it, such as `SIGKILL`. */
  readonly signal?: string;
  /** Whether it timed out. */
  readonly timedOut: boolean;
  /** Whether it was killed on request. */
  readonly killed: boolean;
  /** Whether the kernel's OOM killer killed one of its processes. */
  readonly outOfMemory: boolean;
  /** How long it ran. */
  readonly duration?: number;
  /** CPU time in user mode. */
  readonly userTime?: number;
  /** CPU time in the kernel. */
  readonly systemTime?: number;
  /** Peak memory of its largest process, in bytes. */
  readonly peakMemory?: number;
  /** How many bytes it has printed. */
  readonly outputBytes: number;
  /** How many of these bytes are no longer in the log. */
  readonly droppedBytes: number;
  /** How many bytes were written to its standard input. */
  readonly inputBytes: number;
  /** The path of its log in the sandbox. */
  readonly log: string;
  /** The processes it started that are still running. */
  readonly processes: Process[];
  /** Why it couldn't be started. */
  readonly error?: Error;
}

/** Makes an error of the description in a result. */
export function withError<T extends { error?: Parameters<typeof described>[0] }>(
  result: T,
): Omit<T, "error"> & { error?: Error } {
  return result.error === undefined ? (result as Omit<T, "error">) : { ...result, error: described(result.error) };
}

/** The public form of a command. */
export function commandInfo(info: NativeCommandInfo): CommandInfo {
  return withError(info);
}

const NOTHING = new Uint8Array();

/** The result of a command that has ended. */
export class ExecResult {
  /** Both streams as bytes, in order of arrival. */
  readonly raw: Uint8Array;
  /** Standard output as bytes. */
  readonly rawStdout: Uint8Array;
  /** Standard error as bytes. */
  readonly rawStderr: Uint8Array;
  /** How many bytes of output were left out. */
  readonly dropped: number;
  /** The offset in `raw` where they were left out. */
  readonly cutAt: number | undefined;
  /** Everything else about the command: its log, its resource usage, the processes it left running. */
  readonly info: CommandInfo;

  /** @internal */
  constructor(native: NativeExecResult) {
    this.raw = native.raw;
    this.rawStdout = native.rawStdout ?? native.raw;
    this.rawStderr = native.rawStderr ?? NOTHING;
    this.dropped = native.dropped;
    this.cutAt = native.cutAt;
    this.info = commandInfo(native.info);
  }

  /** The command's id. */
  get id(): string {
    return this.info.id;
  }

  /** Both streams as text, in order of arrival. Invalid UTF-8 is replaced. */
  get output(): string {
    return text(this.raw);
  }

  /** Standard output as text. */
  get stdout(): string {
    return text(this.rawStdout);
  }

  /** Standard error as text. */
  get stderr(): string {
    return text(this.rawStderr);
  }

  /** The exit code: 128 + n if signal n killed the command, 124 after a timeout, undefined if the outcome is unknown. */
  get exitCode(): number | undefined {
    return this.info.exitCode;
  }

  /** The signal that killed it, such as `SIGKILL`. */
  get signal(): string | undefined {
    return this.info.signal;
  }

  /** Whether it timed out. */
  get timedOut(): boolean {
    return this.info.timedOut;
  }

  /** Whether it was killed on request. */
  get killed(): boolean {
    return this.info.killed;
  }

  /** Whether the kernel's OOM killer killed one of its processes. */
  get outOfMemory(): boolean {
    return this.info.outOfMemory;
  }

  /** Whether part of the output was left out. */
  get truncated(): boolean {
    return this.cutAt !== undefined;
  }

  /** How many bytes the command printed in all. */
  get outputBytes(): number {
    return this.info.outputBytes;
  }

  /** How long it ran. */
  get duration(): number {
    return this.info.duration ?? 0;
  }

  /** Whether it exited with code 0. */
  get ok(): boolean {
    return this.exitCode === 0;
  }

  /** Returns this result if the command exited with code 0; throws `CommandFailed` otherwise. */
  check(): this {
    if (this.ok) {
      return this;
    }
    let how = "was lost: its outcome is unknown";
    if (this.timedOut) {
      how = "timed out";
    } else if (this.signal !== undefined) {
      how = `was killed by ${this.signal}`;
    } else if (this.exitCode !== undefined) {
      how = `exited with code ${this.exitCode}`;
    }
    const last = this.stderr.trimEnd().split("\n").at(-1);
    const said = last ? `: ${last}` : "";
    throw new CommandFailed(`the command ${JSON.stringify(this.info.command)} ${how}${said}`, this);
  }
}

/** The podbayd of a sandbox. */
export interface Welcome {
  /** Its protocol version. */
  readonly version: string;
  /** Its build. */
  readonly build: string;
  /** Identifies this run of podbayd; another value means that it was restarted. */
  readonly instance: string;
  /** The working directory of commands. */
  readonly workdir: string;
  /** Where podbayd keeps its own files. */
  readonly state: string;
  /** How long nothing has been running. */
  readonly idle: number;
  /** How many commands still have running processes. */
  readonly running: number;
}

/** One protection of podbayd against commands. */
export interface Protection {
  /** What it protects: `domain` (podbayd's memory), `signals`, `directory`, `socket`, `system_calls` or `program`. */
  readonly kind: string;
  /** Whether it is in force. */
  readonly inForce: boolean;
  /** How it is enforced, or why it isn't and what to do about that. */
  readonly detail: string;
}

/** How commands, which run as podbayd's user, are kept from interfering with podbayd. */
export interface ProtectionReport {
  /** The Landlock ABI in use; 0 if the kernel has none. */
  readonly landlockAbi: number;
  /** Each protection, in force or not. */
  readonly protections: Protection[];
}

/** The state of a sandbox in a list. */
export type Phase = "pending" | "warm" | "running" | "suspended" | "terminated";

/** A sandbox in a list. */
export interface Listed {
  /** Its id. */
  readonly id: string;
  /** Its labels. */
  readonly labels: Record<string, string>;
  /** Its state. */
  readonly phase: Phase;
  /** When it was created. */
  readonly created: number;
  /** When it was last used, if that is known. */
  readonly active?: number;
  /** When it expires at the latest. */
  readonly expires?: number;
}

/** One page of a list. */
export interface Page {
  /** The sandboxes, sorted by id. */
  readonly sandboxes: Listed[];
  /** Where the next page begins; absent on the last page. */
  readonly cursor?: string;
}

/** The outcome of a cleanup. */
export interface Cleaned {
  /** The ids of the deleted sandboxes. */
  readonly deleted: string[];
  /** How many sandboxes were kept. */
  readonly kept: number;
  /** Which sandboxes couldn't be deleted, and why. */
  readonly failed: { readonly id: string; readonly reason: string }[];
}

/** How many sandboxes there are. */
export interface Stats {
  /** All sandboxes. */
  readonly total: number;
  /** Those that are ready for use. */
  readonly running: number;
  /** Those waiting in a warm pool. */
  readonly warm: number;
  /** Those that haven't been used for a while. */
  readonly idle: number;
}

/** How full the warm pool is. */
export interface PoolStatus {
  /** Sandboxes that can be claimed right away. */
  readonly available: number;
  /** Sandboxes from the pool that are in use. */
  readonly active: number;
  /** All sandboxes of the pool: available, in use or still starting. */
  readonly total: number;
  /** How many sandboxes should be available. */
  readonly target: number;
}

/** What an audit function is told about an operation, in addition to its name and target. */
export interface AuditMeta {
  /** When it began or ended. */
  readonly time: number;
  /** Identifies the operation: its `begun` and its last entry have the same. */
  readonly operation: string;
  /** The sandbox's id. */
  readonly sandbox: string;
  /** The outcome. */
  readonly decision: "begun" | "allowed" | "denied" | "failed" | (string & {});
  /** How many bytes it moved. */
  readonly bytes: number | null;
  /** How long it took. */
  readonly duration: number;
  /** A command's exit code. */
  readonly exitCode: number | null;
  /** Why it failed: the code of the error. */
  readonly error: string | null;
  /** Who says that it was denied: this process, which sent nothing, or the sandbox, which enforces rules on paths. */
  readonly deniedBy: "client" | "sandbox" | (string & {}) | null;
  /** Why this process denied it. */
  readonly reason: unknown;
  /** What it did, under the names that the file has for it (docs/audit.md); null when it is about to begin. */
  readonly effect: Record<string, unknown> | null;
  /** Everything about the operation, including the whole command line. */
  readonly details: Record<string, unknown>;
}
