"""Converts failures to results of Deep Agents.

A run must not die because a file is missing or a connection broke, but the SDK lets a backend's exceptions end it. So
every failure becomes the result of the operation that failed, with the strings that the SDK's own sandboxes use.
"""

from __future__ import annotations

import logging
from typing import Final

from deepagents.backends.protocol import (
    FILE_NOT_FOUND,
    INVALID_PATH,
    IS_DIRECTORY,
    PERMISSION_DENIED,
    DeleteResult,
    EditResult,
    ExecuteResponse,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.sandbox import MAX_BINARY_BYTES

from podbay.errors import DeadlineExceeded, OperationError, PodbayError, PolicyDenied, SandboxRestarted, Unreachable

logger = logging.getLogger("podbay.deepagents")

DENIED_EXIT: Final = 126
"""The exit code of a shell for a command that exists but can't be executed."""

_READ: Final = {
    "not_found": "file_not_found",
    "not_a_directory": "file_not_found",
    "permission_denied": "permission_denied",
    "is_directory": "not_a_file",
    "not_a_file": "not_a_file",
    "too_large": f"Binary file exceeds maximum preview size of {MAX_BINARY_BYTES} bytes",
}
_LIST: Final = {
    "not_found": "path_not_found",
    "not_a_directory": "not_a_directory",
    "permission_denied": "permission_denied",
    "pattern_too_broad": "pattern_too_broad",
    "invalid_pattern": "invalid_pattern",
}
_TRANSFER: Final = {
    "not_found": FILE_NOT_FOUND,
    "not_a_directory": FILE_NOT_FOUND,
    "permission_denied": PERMISSION_DENIED,
    "read_only": PERMISSION_DENIED,
    "policy_denied": PERMISSION_DENIED,
    "escapes_root": PERMISSION_DENIED,
    "is_directory": IS_DIRECTORY,
    "invalid_path": INVALID_PATH,
}


def text(failure: BaseException) -> str:
    """Returns the message of a failure without its path, which the caller adds."""
    if not isinstance(failure, PodbayError):
        # Not a failure of the sandbox, but an argument of a wrong type or a bug in Podbay: log the traceback.
        logger.warning("an operation failed unexpectedly", exc_info=failure)
        return f"{type(failure).__name__}: {failure}"
    if isinstance(failure, OperationError) and failure.path is not None:
        return failure.message.removeprefix(f"'{failure.path}': ")
    return failure.message


def _code(failure: BaseException) -> str | None:
    return failure.code if isinstance(failure, OperationError) else None


def ls(path: str, failure: Exception) -> LsResult:
    """Returns the result for a directory that can't be listed."""
    return LsResult(error=f"Path '{path}': {_LIST.get(_code(failure) or '') or text(failure)}")


def read(path: str, offset: int, failure: Exception) -> ReadResult:
    """Returns the result for a file that can't be read."""
    if isinstance(failure, OperationError) and failure.code == "offset_past_end":
        reason = f"Line offset {offset} exceeds file length ({failure.count} lines)"
    else:
        reason = _READ.get(_code(failure) or "") or text(failure)
    return ReadResult(error=f"File '{path}': {reason}")


def write(path: str, failure: Exception) -> WriteResult:
    """Returns the result for a file that can't be written."""
    code = _code(failure)
    # The message of a rule says more than its code: which rule it is, and what it allows.
    reason = None if isinstance(failure, PolicyDenied) else _TRANSFER.get(code or "")
    if code == "not_a_directory":
        reason = code
    return WriteResult(error=f"Failed to write file '{path}': {reason or text(failure)}")


def edit(path: str, old: str, failure: Exception) -> EditResult:
    """Returns the result for an edit that failed."""
    match _code(failure):
        case "not_found" | "not_a_directory":
            error = f"Error: File '{path}' not found"
        case "permission_denied":
            error = f"Error: Permission denied editing file '{path}'"
        case "is_directory" | "not_a_file":
            error = f"Error: '{path}' is not a regular file"
        case "not_text":
            error = f"Error: File '{path}' is not a text file"
        case "string_not_found":
            error = f"Error: String not found in file: '{old}'"
        case "string_not_unique":
            error = f"Error: String '{old}' appears multiple times. Use replace_all=True to replace all occurrences."
        case _:
            error = f"Error editing file '{path}': {text(failure)}"
    return EditResult(error=error)


def delete(path: str, failure: Exception) -> DeleteResult:
    """Returns the result for a deletion that failed."""
    if _code(failure) in ("not_found", "not_a_directory"):
        return DeleteResult(error=f"Error: '{path}' not found")
    return DeleteResult(error=f"Error deleting file '{path}': {text(failure)}")


def glob(path: str | None, failure: Exception) -> GlobResult:
    """Returns the result for a glob that failed."""
    reason = _LIST.get(_code(failure) or "")
    if reason is None:
        reason = text(failure)
        if isinstance(failure, OperationError) and not isinstance(failure, PolicyDenied):
            reason = f"internal_error: {type(failure).__name__}: {reason}"
    return GlobResult(error=f"Path '{_start(path, failure)}': {reason}")


def grep(path: str | None, pattern: str | None, failure: Exception) -> GrepResult:
    """Returns the result for a grep that failed, which is never "no matches"."""
    code = _code(failure)
    if code == "invalid_pattern" and pattern is not None and ".." in pattern.split("/"):
        return GrepResult(error=f"Path traversal not allowed in glob pattern '{pattern}'")
    start = _start(path, failure)
    if code in _LIST:
        return GrepResult(error=f"Path '{start}': {_LIST[code]}")
    return GrepResult(error=f"Error: grep in '{start}' failed: {text(failure)}")


def transfer(failure: BaseException) -> str:
    """Returns why a file can't be uploaded or downloaded: one of the SDK's codes if one fits."""
    return _TRANSFER.get(_code(failure) or "") or text(failure)


def execute(failure: Exception) -> ExecuteResponse:
    """Returns the response for a command that didn't run, or whose outcome is unknown."""
    if isinstance(failure, PolicyDenied):
        return ExecuteResponse(output=f"Error: {text(failure)}", exit_code=DENIED_EXIT)
    # It may have run. The SDK has no code for an unknown outcome but None.
    unknown = isinstance(failure, DeadlineExceeded | SandboxRestarted | Unreachable)
    return ExecuteResponse(output=f"Error: {text(failure)}", exit_code=None if unknown else 1)


def _start(path: str | None, failure: Exception) -> str:
    if path is not None:
        return path
    # The failure's path may also be the pattern.
    about = failure.path if isinstance(failure, OperationError) else None
    return about if about is not None and about.startswith("/") else "."
