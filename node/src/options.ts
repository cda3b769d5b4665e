/** Options of sandboxes and providers, and what the native module makes of them. */

import { type NativeAudit, type NativePodbay, type NativeSandbox, type NativeWanted, native } from "./native.js";
import { now } from "./operation.js";
import type { AuditMeta } from "./results.js";
import type { Settings } from "./settings.js";

/** Told of every operation: its name, what it is about, and everything else. */
export type AuditFunction = (op: string, target: string, meta: AuditMeta) => void;

/** Settings, rules and audit of a `Podbay`. Every setting can also come from `PODBAY_…` variables and podbay.toml. */
export interface PodbayOptions extends Omit<Settings, "strict" | "file"> {
  /** A function, which is told in addition to the file in `audit.file`, or the path of that file. */
  auditLog?: AuditFunction | string | undefined;
  /** Refuse operations that can't be recorded; an audit function that throws refuses the operation. */
  strictAudit?: boolean | undefined;
  /** The root of `virtualMode`. Default: /workspace. */
  rootDir?: string | undefined;
  /** The path of a settings file. */
  config?: string | undefined;
}

/** Which sandbox is wanted: the one with an id or of a thread, or a new one. */
export interface WantedOptions {
  /** Use the sandbox with this id, and create it if it doesn't exist. */
  id?: string | undefined;
  /** The same, with an id derived from a conversation. */
  thread?: string | undefined;
  /** Whose conversation it is. Threads of different tenants never share a sandbox. */
  tenant?: string | undefined;
  /** Labels of a new sandbox. */
  labels?: Record<string, string> | undefined;
  /** How long a new sandbox may live: seconds, or a text such as "2h". */
  ttl?: number | string | undefined;
  /** How long it may be idle. */
  idleTtl?: number | string | undefined;
  /** Whether it ends with this process. */
  leashed?: boolean | undefined;
}

/** Options of a sandbox: which one to use, and all settings. */
export interface SandboxOptions extends PodbayOptions, Omit<WantedOptions, "ttl" | "idleTtl"> {}

/** What is wanted, without the settings. */
export function wanted(options: WantedOptions): NativeWanted {
  const { id, thread, tenant, labels, ttl, idleTtl, leashed } = options;
  return own({ id, thread, tenant, labels, ttl, idleTtl, leashed });
}

/**
 * What an object itself has. The native module also reads what objects inherit, so a program that lets others write to
 * `Object.prototype` would let them give sandboxes more than it asks for.
 */
export function own<T extends object>(given: T): Defined<T> {
  const copy = Object.create(null);
  for (const [name, value] of Object.entries(given)) {
    if (value !== undefined && value !== null) {
      copy[name] = Object.getPrototypeOf(value) === Object.prototype ? own(value) : value;
    }
  }
  return copy;
}

/** The same without what is undefined. */
type Defined<T> = { [Key in keyof T]?: Exclude<T[Key], undefined> };

/** Reads the settings. Nothing is opened yet. */
export function podbay(options: PodbayOptions): NativePodbay {
  const { auditLog, ...given } = options;
  const settings: Record<string, unknown> = own(given);
  if (typeof auditLog === "string") {
    settings["auditLog"] = auditLog;
  }
  const audit = typeof auditLog === "function" ? told(auditLog) : undefined;
  return now(() => new native.NativePodbay(settings, audit, warn));
}

function told(tell: AuditFunction): NativeAudit {
  return ({ op, target, meta }) => {
    try {
      tell(op, target, meta);
      return null;
    } catch (failure) {
      return failure instanceof Error ? failure.message : String(failure);
    }
  };
}

/** Operations go on unrecorded, and their callers don't learn of that. */
function warn(message: string): void {
  process.emitWarning(message, "PodbayAuditWarning");
}

/** A sandbox that is created, or found, when it is first used. */
export function open(options: SandboxOptions): NativeSandbox {
  const { id, thread, tenant, labels, leashed, ...settings } = options;
  const from = podbay(settings);
  return now(() => from.lazy(wanted({ id, thread, tenant, labels, leashed })));
}
