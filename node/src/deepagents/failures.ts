/**
 * Converts failures to results of Deep Agents. A run must not die because a file is missing or a connection broke, but the
 * SDK lets a backend's errors end it. So every failure becomes the result of the operation that failed, with the strings that
 * the SDK's own sandboxes use.
 */

import type { EditResult, ExecuteResponse, FileOperationError } from "deepagents";
import {
  DeadlineExceeded,
  OperationError,
  PodbayError,
  PolicyDenied,
  SandboxRestarted,
  Unreachable,
} from "../errors.js";

/** The exit code of a shell for a command that exists but can't be executed. */
export const DENIED_EXIT = 126;

/** The exit code of a shell whose user pressed Ctrl-C. */
const ABORTED_EXIT = 130;

const TRANSFER: Readonly<Record<string, FileOperationError>> = {
  not_found: "file_not_found",
  not_a_directory: "file_not_found",
  permission_denied: "permission_denied",
  read_only: "permission_denied",
  policy_denied: "permission_denied",
  escapes_root: "permission_denied",
  is_directory: "is_directory",
  not_a_file: "invalid_path",
  invalid_path: "invalid_path",
  invalid_argument: "invalid_path",
};

/** The message of a failure without its path, which the caller adds. */
export function text(failure: unknown): string {
  if (failure instanceof OperationError && failure.path !== undefined) {
    const prefix = `'${failure.path}': `;
    return failure.message.startsWith(prefix) ? failure.message.slice(prefix.length) : failure.message;
  }
  if (failure instanceof PodbayError) {
    return failure.message;
  }
  return failure instanceof Error ? `${failure.name}: ${failure.message}` : String(failure);
}

/** The code of a failure in the sandbox. */
export function code(failure: unknown): string | undefined {
  return failure instanceof OperationError ? failure.code : undefined;
}

function isMissing(failure: unknown): boolean {
  return code(failure) === "not_found" || code(failure) === "not_a_directory";
}

/** Why a directory can't be listed. One that is missing, or a file, has no entries: that isn't an error. */
export function ls(path: string, failure: unknown): { error: string } | { files: [] } {
  return isMissing(failure) ? { files: [] } : { error: `Path '${path}': ${code(failure) ?? text(failure)}` };
}

/** Why a file can't be read. */
export function read(path: string, offset: number, failure: unknown): { error: string } {
  if (failure instanceof OperationError) {
    switch (failure.code) {
      case "not_found":
      case "not_a_directory":
        return { error: `File '${path}' not found` };
      case "permission_denied":
        return { error: `File '${path}': permission denied` };
      case "is_directory":
        return { error: `File '${path}': is a directory` };
      case "offset_past_end":
        return { error: `Line offset ${offset} exceeds file length (${failure.count ?? 0} lines)` };
    }
  }
  return { error: `File '${path}': ${text(failure)}` };
}

/** Why a file can't be written. */
export function write(path: string, failure: unknown): { error: string } {
  // The message of a rule says more than its code: which rule it is, and what it allows.
  const known = failure instanceof PolicyDenied ? undefined : TRANSFER[code(failure) ?? ""];
  return { error: `Failed to write to ${path}: ${known ?? text(failure)}` };
}

/** Why an edit failed. */
export function edit(path: string, old: string, failure: unknown): EditResult {
  switch (code(failure)) {
    case "not_found":
    case "not_a_directory":
      return { error: `Error: File '${path}' not found` };
    case "permission_denied":
      return { error: `Error: Permission denied editing file '${path}'` };
    case "is_directory":
    case "not_a_file":
      return { error: `Error: '${path}' is not a regular file` };
    case "not_text":
      return { error: `Error: File '${path}' is not a text file` };
    case "string_not_found":
      return { error: `String not found in file '${path}'` };
    case "string_not_unique":
      return { error: `Multiple occurrences found in '${path}'. Use replaceAll=true to replace all.` };
    case "invalid_argument":
      if (old === "") {
        return { error: "oldString must not be empty unless the file is empty" };
      }
  }
  return { error: `Error editing file '${path}': ${text(failure)}` };
}

/** Why something can't be deleted. */
export function remove(path: string, failure: unknown): { error: string } {
  // CompositeBackend looks for "not found".
  const missing = `Error: '${path}' not found`;
  return { error: isMissing(failure) ? missing : `Error deleting file '${path}': ${text(failure)}` };
}

/** Why a search failed, which is never "no matches". */
export function search(what: "glob" | "grep", path: string | undefined, failure: unknown): { error: string } {
  return { error: `Error: ${what} in '${path ?? "."}' failed: ${text(failure)}` };
}

/** Why a file can't be uploaded or downloaded: one of the SDK's codes if one fits. */
export function transfer(failure: unknown): FileOperationError {
  // The SDK's set of codes is closed, but a full disk or a lost connection is neither of them, and must be seen.
  return TRANSFER[code(failure) ?? ""] ?? (text(failure) as FileOperationError);
}

/** The response for a command that didn't run, or whose outcome is unknown. */
export function execute(failure: unknown, signal: AbortSignal | undefined): ExecuteResponse {
  if (signal?.aborted && failure === signal.reason) {
    return {
      output: "Error: the run was aborted, and the command was killed",
      exitCode: ABORTED_EXIT,
      truncated: false,
    };
  }
  const output = `Error: ${text(failure)}`;
  if (failure instanceof PolicyDenied) {
    return { output, exitCode: DENIED_EXIT, truncated: false };
  }
  // It may have run. The SDK has no code for an unknown outcome but null.
  const unknown = [DeadlineExceeded, SandboxRestarted, Unreachable].some((kind) => failure instanceof kind);
  return { output, exitCode: unknown ? null : 1, truncated: false };
}
