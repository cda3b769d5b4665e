/** Makes errors of what native operations throw. */

import {
  AlreadyExists,
  BadAnswer,
  ClosedError,
  ConfigError,
  Contended,
  ControllerMissing,
  DeadlineExceeded,
  InvalidCursor,
  IsDirectory,
  LocalFileError,
  NameTaken,
  NotADirectory,
  NotFound,
  OperationError,
  OperationTimedOut,
  PermissionDenied,
  PodbayError,
  PodGone,
  PolicyDenied,
  ProviderError,
  SandboxNotFound,
  SandboxRestarted,
  SandboxSuspended,
  StartupFailed,
  StartupTimeout,
  TemplateNotFound,
  Unreachable,
  VersionMismatch,
  WarmPoolNotFound,
} from "./errors.js";
import type { FailureDescription } from "./native-types.js";

const OPERATIONS = {
  OperationError,
  NotFound,
  AlreadyExists,
  IsDirectory,
  NotADirectory,
  PolicyDenied,
  OperationTimedOut,
  VersionMismatch,
  PermissionDenied,
} as const;

const OTHERS = {
  PodbayError,
  Unreachable,
  SandboxRestarted,
  DeadlineExceeded,
  BadAnswer,
  SandboxNotFound,
  ClosedError,
  ProviderError,
  StartupFailed,
  StartupTimeout,
  PodGone,
  Contended,
  NameTaken,
  InvalidCursor,
  TemplateNotFound,
  WarmPoolNotFound,
  ControllerMissing,
  SandboxSuspended,
  ConfigError,
  LocalFileError,
} as const;

function describedBy(failure: unknown): FailureDescription | undefined {
  if (!(failure instanceof Error) || !failure.message.startsWith("{")) {
    return undefined;
  }
  try {
    const described: unknown = JSON.parse(failure.message);
    const known = typeof described === "object" && described !== null && "class" in described && "code" in described;
    return known ? (described as FailureDescription) : undefined;
  } catch {
    return undefined;
  }
}

/** Whether a native operation ended because it was cancelled. */
export function isCancelled(failure: unknown): boolean {
  return describedBy(failure)?.class === "AbortError";
}

/** The error that a description means. */
export function described(failure: FailureDescription): Error {
  const { class: name, code, message } = failure;
  if (name === "TypeError") {
    return new TypeError(message);
  }
  if (name in OPERATIONS) {
    const { path, count, errno } = failure;
    const details = { path: path ?? undefined, count: count ?? undefined, errno: errno ?? undefined };
    return new OPERATIONS[name as keyof typeof OPERATIONS](message, code, details);
  }
  const known = name in OTHERS ? OTHERS[name as keyof typeof OTHERS] : PodbayError;
  return new known(message, code);
}

/** What napi says about an argument of a wrong type. */
const ARGUMENT = /Expected$|^InvalidArg$/;

/** The error for what a native operation threw. */
export function converted(failure: unknown): unknown {
  const description = describedBy(failure);
  if (description !== undefined) {
    return described(description);
  }
  if (failure instanceof Error && "code" in failure && ARGUMENT.test(String(failure.code))) {
    return new TypeError(failure.message, { cause: failure });
  }
  return failure;
}
