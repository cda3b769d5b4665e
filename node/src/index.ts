/**
 * Sandboxes for AI agents, on this machine and on any Kubernetes cluster.
 *
 * ```ts
 * import { Sandbox } from "podbay";
 *
 * await using sandbox = new Sandbox();
 * console.log((await sandbox.run("echo $((2 + 2))")).output); // 4
 * ```
 */

import { native } from "./native.js";
import type { Setting } from "./settings.js";

export * from "./errors.js";
export { type EndEvent, Exec, type ExecEvent, type LostEvent, type OutputEvent } from "./exec.js";
export type * from "./file-contents.js";
export type * from "./files.js";
export type { Abortable } from "./operation.js";
export type { AuditFunction, PodbayOptions, SandboxOptions, WantedOptions } from "./options.js";
export { type ListOptions, Manager, type ManagerOptions, Podbay, Podbay as Provider, sandboxId } from "./podbay.js";
export type {
  AuditMeta,
  Cleaned,
  CommandInfo,
  DownloadResult,
  Listed,
  Page,
  Phase,
  PoolStatus,
  Process,
  Progress,
  Protection,
  ProtectionReport,
  Stats,
  Transferred,
  UploadResult,
  Welcome,
} from "./results.js";
export { ExecResult } from "./results.js";
export {
  type CommandLine,
  type CommandOptions,
  type RunOptions,
  Sandbox,
  type StartOptions,
  type TransferOptions,
  type UploadOptions,
} from "./sandbox.js";
export type { Setting, Settings } from "./settings.js";

/** The package's version. */
export const VERSION: string = native.version();

/** All settings. */
export const SETTINGS: readonly Setting[] = native.settings();
