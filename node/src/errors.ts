/**
 * Errors, with the same names as in Rust and Python. All derive from `PodbayError`; `code` is for programs, and
 * docs/protocol.md lists all codes.
 */

import type { ExecResult } from "./results.js";

/** The base of all of Podbay's errors. */
export class PodbayError extends Error {
  /** For programs. */
  readonly code: string;

  constructor(message: string, code = "failed", options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** What a failed operation reports in addition to its message. */
export interface OperationErrorDetails {
  /** The path that the failure is about. */
  path?: string | undefined;
  /** Depends on the code: the line count of a file shorter than the offset, the occurrences of a text, or a size. */
  count?: number | undefined;
  /** The kernel's error number if a program couldn't be started. */
  errno?: number | undefined;
}

/** An operation failed in the sandbox, with a `code` such as `not_found` or `string_not_unique`. */
export class OperationError extends PodbayError {
  readonly path: string | undefined;
  readonly count: number | undefined;
  readonly errno: number | undefined;

  constructor(message: string, code = "unknown", details: OperationErrorDetails = {}) {
    super(message, code);
    this.path = details.path;
    this.count = details.count;
    this.errno = details.errno;
  }
}

/** The path doesn't exist. */
export class NotFound extends OperationError {}
/** The path exists, and the caller asked not to replace it. */
export class AlreadyExists extends OperationError {}
/** The path is a directory, but the operation needs a file. */
export class IsDirectory extends OperationError {}
/** The path, or one of its parents, isn't a directory. */
export class NotADirectory extends OperationError {}
/** A rule on paths or commands forbids the operation, or the path leaves the root directory. */
export class PolicyDenied extends OperationError {}
/** The operation took too long. A command that times out isn't an error; its result says so. */
export class OperationTimedOut extends OperationError {}
/** Client and sandbox speak different versions of the protocol. */
export class VersionMismatch extends OperationError {}
/**
 * The sandbox's user has no permission for `path`, or the account has none in the cluster. In the latter case `code` is
 * `forbidden`, and the message names the missing RBAC verb and resource.
 */
export class PermissionDenied extends OperationError {}
/** The sandbox or the cluster can't be reached, even after retrying for a while. */
export class Unreachable extends PodbayError {}
/** The sandbox was restarted during an operation that changes something, which may or may not have taken effect. */
export class SandboxRestarted extends PodbayError {}
/** The sandbox is connected but doesn't answer in time: the operation may or may not have taken effect. */
export class DeadlineExceeded extends PodbayError {}
/** The sandbox sent an invalid response. */
export class BadAnswer extends PodbayError {}
/** The sandbox doesn't exist. */
export class SandboxNotFound extends PodbayError {}
/** The object is closed, or its sandbox was deleted. */
export class ClosedError extends PodbayError {}
/** A sandbox can't be created, found or deleted. */
export class ProviderError extends PodbayError {}
/** The sandbox's pod, or podbayd in it, can't start. The message has the reason. */
export class StartupFailed extends ProviderError {}
/** The sandbox's pod didn't start in time. The message has the pod's events. */
export class StartupTimeout extends ProviderError {}
/** The sandbox's pod no longer exists. */
export class PodGone extends ProviderError {}
/** Other clients keep changing or holding the same sandbox or pool. Try again later. */
export class Contended extends ProviderError {}
/** The cluster has something else of that name. Choose another id or namespace. */
export class NameTaken extends ProviderError {}
/** The cursor of a list is invalid or has expired. List again without it. */
export class InvalidCursor extends ProviderError {}
/** The SandboxTemplate doesn't exist. */
export class TemplateNotFound extends ProviderError {}
/** The SandboxWarmPool doesn't exist, or no pool uses the template and none can be created. */
export class WarmPoolNotFound extends ProviderError {}
/** The cluster doesn't have the agent-sandbox CRDs. */
export class ControllerMissing extends ProviderError {}
/** The sandbox is suspended and has to be resumed. */
export class SandboxSuspended extends ProviderError {}
/** A setting is unknown or invalid. */
export class ConfigError extends PodbayError {
  constructor(message: string, code = "config") {
    super(message, code);
  }
}
/** A file on this machine can't be read or written. */
export class LocalFileError extends PodbayError {}
/** `ExecResult.check` was called on a command that failed. */
export class CommandFailed extends PodbayError {
  /** The command's result. */
  readonly result: ExecResult;

  constructor(message: string, result: ExecResult) {
    super(message);
    this.result = result;
  }
}
