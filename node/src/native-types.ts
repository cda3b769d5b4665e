/** What the native module exports. Users see the classes of this package instead. */

import type * as contents from "./file-contents.js";
import type * as results from "./results.js";
import type { Setting } from "./settings.js";

/** Ends operations that were started with it. */
export interface NativeCancellation {
  cancel(): void;
}

/** A failure inside a result. */
export interface FailureDescription {
  class: string;
  code: string;
  message: string;
  path?: string | null;
  count?: number | null;
  errno?: number | null;
}

type Described<T> = Omit<T, "error"> & { error?: FailureDescription };

export type NativeCommandInfo = Described<results.CommandInfo>;
export type NativeUploadResult = Described<results.UploadResult>;
export type NativeDownloadResult = Described<results.DownloadResult>;

export interface NativeTransferred {
  files: number;
  skipped: { path: string; reason: string }[];
  failed: { path: string; error: FailureDescription }[];
}

export interface NativeExecResult {
  raw: Uint8Array;
  rawStdout?: Uint8Array;
  rawStderr?: Uint8Array;
  dropped: number;
  cutAt?: number;
  info: NativeCommandInfo;
}

export interface NativeExecEvent {
  kind: "output" | "lost" | "end";
  stream?: "stdout" | "stderr";
  data?: Uint8Array;
  bytes?: number;
  info?: NativeCommandInfo;
}

export interface NativeReadResult extends Omit<contents.ReadResult, "text"> {}

export interface NativeCommandOptions {
  timeout?: number | undefined;
  cwd?: string | undefined;
  env?: Record<string, string> | undefined;
  stdin?: boolean | undefined;
  merge?: boolean | undefined;
}

type Progress = (progress: results.Progress) => void;
type Cancel = NativeCancellation | undefined;

export interface NativeExec {
  readonly id: string;
  readonly offset: number;
  readonly ended: boolean;
  next(cancel?: Cancel): Promise<NativeExecEvent | null>;
  write(data: Uint8Array): Promise<boolean>;
  closeInput(): Promise<void>;
  signal(signal: number): Promise<number>;
  kill(): Promise<number>;
  wait(cancel?: Cancel): Promise<NativeCommandInfo>;
}

export interface NativeSandbox {
  readonly id: string;
  readonly mode: string;
  readonly created: boolean | null;
  readonly replaced: boolean;
  readonly closed: boolean;
  open(cancel?: Cancel): Promise<void>;
  close(): Promise<void>;
  destroy(): Promise<boolean>;
  hello(cancel?: Cancel): Promise<results.Welcome>;
  protections(cancel?: Cancel): Promise<results.ProtectionReport>;
  read(path: string, options: object, cancel?: Cancel): Promise<NativeReadResult>;
  readBytes(path: string, start: number, length: number | undefined, cancel?: Cancel): Promise<Uint8Array>;
  write(path: string, content: Uint8Array, options: object, cancel?: Cancel): Promise<contents.WriteResult>;
  writeOutputOf(
    path: string,
    id: string,
    limit: number | undefined,
    gap: Uint8Array,
    cancel?: Cancel,
  ): Promise<contents.WriteResult>;
  edit(path: string, old: Uint8Array, text: Uint8Array, options: object, cancel?: Cancel): Promise<contents.EditResult>;
  perform(operation: string, request: string, cancel?: Cancel): Promise<string>;
  upload(files: [string, Uint8Array][], createOnly: boolean, cancel?: Cancel): Promise<NativeUploadResult[]>;
  download(paths: string[], cancel?: Cancel): Promise<NativeDownloadResult[]>;
  uploadFile(
    local: string,
    path: string,
    progress: Progress | undefined,
    cancel?: Cancel,
  ): Promise<contents.WriteResult>;
  downloadFile(path: string, local: string, progress: Progress | undefined, cancel?: Cancel): Promise<number>;
  uploadTree(local: string, path: string, progress: Progress | undefined, cancel?: Cancel): Promise<NativeTransferred>;
  downloadTree(
    path: string,
    local: string,
    progress: Progress | undefined,
    cancel?: Cancel,
  ): Promise<NativeTransferred>;
  run(
    command: string | string[],
    options: NativeCommandOptions,
    input: Uint8Array | undefined,
    outputLimit: number | undefined,
    cancel?: Cancel,
  ): Promise<NativeExecResult>;
  stream(command: string | string[], options: NativeCommandOptions, cancel?: Cancel): Promise<NativeExec>;
  attach(id: string, offset: number, cancel?: Cancel): Promise<NativeExec>;
  start(command: string | string[], options: NativeCommandOptions, cancel?: Cancel): Promise<NativeCommandInfo>;
  status(id: string, cancel?: Cancel): Promise<NativeCommandInfo>;
  commands(running: boolean, cancel?: Cancel): Promise<NativeCommandInfo[]>;
  signal(id: string, signal: number, main: boolean, cancel?: Cancel): Promise<number>;
  kill(id: string, cancel?: Cancel): Promise<number>;
}

export interface NativeWanted {
  id?: string;
  thread?: string;
  tenant?: string;
  labels?: Record<string, string>;
  ttl?: number | string;
  idleTtl?: number | string;
  leashed?: boolean;
}

export interface NativePodbay {
  readonly mode: string;
  lazy(wanted: NativeWanted): NativeSandbox;
  getOrCreate(wanted: NativeWanted, cancel?: Cancel): Promise<NativeSandbox>;
  thread(wanted: NativeWanted, cancel?: Cancel): Promise<NativeSandbox>;
  release(tenant: string, thread: string): Promise<boolean>;
  reconnect(id: string, cancel?: Cancel): Promise<NativeSandbox>;
  list(options: object, tenant: string | undefined, cancel?: Cancel): Promise<results.Page>;
  delete(id: string): Promise<boolean>;
  suspend(id: string): Promise<void>;
  resume(id: string): Promise<void>;
  cleanup(maxIdle: number | string | undefined): Promise<results.Cleaned>;
  stats(idle: number | string | undefined): Promise<results.Stats>;
  poolStatus(): Promise<results.PoolStatus>;
  refill(): Promise<results.PoolStatus>;
}

/** An entry of the audit, and why it is refused if it is. */
export type NativeAudit = (entry: { op: string; target: string; meta: results.AuditMeta }) => string | null;

export interface Native {
  Cancellation: new () => NativeCancellation;
  NativePodbay: new (
    settings: Record<string, unknown>,
    audit: NativeAudit | undefined,
    warn: (message: string) => void,
  ) => NativePodbay;
  sandboxId(tenant: string, thread: string): string;
  settings(): Setting[];
  operations(): string[];
  errors(): { code: string; name: string }[];
  version(): string;
}
