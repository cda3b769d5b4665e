"""Exceptions, with the same names as in Rust.

All derive from `PodbayError`, and from a built-in exception where one fits: a missing file is also a
`FileNotFoundError`, an unreachable sandbox also a `ConnectionError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podbay._native import ExecResult

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "BadAnswer",
    "ClosedError",
    "CommandFailed",
    "ConfigError",
    "Contended",
    "ControllerMissing",
    "DeadlineExceeded",
    "ForkError",
    "InvalidCursor",
    "IsDirectory",
    "LocalFileError",
    "NameTaken",
    "NotADirectory",
    "NotFound",
    "OperationError",
    "OperationTimedOut",
    "PermissionDenied",
    "PodGone",
    "PodbayError",
    "PolicyDenied",
    "ProviderError",
    "SandboxNotFound",
    "SandboxRestarted",
    "SandboxSuspended",
    "StartupFailed",
    "StartupTimeout",
    "TemplateNotFound",
    "Unreachable",
    "VersionMismatch",
    "WarmPoolNotFound",
]


class PodbayError(Exception):
    """The base of all of Podbay's exceptions. `code` is for programs; docs/protocol.md lists all codes."""

    code: str = "failed"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class OperationError(PodbayError):
    """An operation failed in the sandbox, with a `code` such as `not_found` or `string_not_unique`.

    `path` is the path that the failure is about. `count` depends on the code: how many lines a file has that is shorter
    than the offset, how often a text occurs that isn't unique, the size of a file that is too large. `errno` is the
    kernel's error number if a program couldn't be started.
    """

    code = "unknown"

    def __init__(
        self,
        message: str,
        code: str | None = None,
        path: str | None = None,
        count: int | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.path = path
        self.count = count
        self.errno = errno

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.code, self.path, self.count, self.errno)


class NotFound(OperationError, FileNotFoundError):
    """The path doesn't exist."""

    code = "not_found"


class AlreadyExists(OperationError, FileExistsError):
    """The path exists, and the caller asked not to replace it."""

    code = "already_exists"


class IsDirectory(OperationError, IsADirectoryError):
    """The path is a directory, but the operation needs a file."""

    code = "is_directory"


class NotADirectory(OperationError, NotADirectoryError):
    """The path, or one of its parents, isn't a directory."""

    code = "not_a_directory"


class PolicyDenied(OperationError, PermissionError):
    """A rule on paths or commands forbids the operation, or the path leaves the root directory."""

    code = "policy_denied"


class OperationTimedOut(OperationError, TimeoutError):
    """The operation took too long. A command that times out isn't an exception; its result says so."""

    code = "timed_out"


class CommandFailed(PodbayError):
    """`ExecResult.check` was called on a command that failed."""

    def __init__(self, message: str, result: ExecResult) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.result)


class Unreachable(PodbayError, ConnectionError):
    """The sandbox or the cluster can't be reached, even after retrying for a while."""

    code = "unreachable"


class SandboxRestarted(PodbayError):
    """The sandbox was restarted during an operation that changes something, which may or may not have taken effect."""

    code = "sandbox_restarted"


class DeadlineExceeded(PodbayError, TimeoutError):
    """The sandbox is connected but doesn't answer in time: the operation may or may not have taken effect."""

    code = "deadline_exceeded"


class VersionMismatch(OperationError):
    """Client and sandbox speak different versions of the protocol."""

    code = "version_mismatch"


class BadAnswer(PodbayError):
    """The sandbox sent an invalid response."""

    code = "bad_answer"


class SandboxNotFound(PodbayError, LookupError):
    """The sandbox doesn't exist."""

    code = "sandbox_not_found"


class ClosedError(PodbayError):
    """The object is closed, or its sandbox was deleted."""

    code = "closed"


class ProviderError(PodbayError):
    """A sandbox can't be created, found or deleted."""


class StartupFailed(ProviderError):
    """The sandbox's pod, or podbayd in it, can't start. The message has the reason."""

    code = "startup_failed"


class StartupTimeout(ProviderError, TimeoutError):
    """The sandbox's pod didn't start in time. The message has the pod's events."""

    code = "startup_timeout"


class PodGone(ProviderError):
    """The sandbox's pod no longer exists."""

    code = "pod_gone"


class Contended(ProviderError):
    """Other clients keep changing or holding the same sandbox or pool. Try again later."""

    code = "contended"


class NameTaken(ProviderError):
    """The cluster has something else of that name. Choose another id or namespace."""

    code = "name_taken"


class InvalidCursor(ProviderError, ValueError):
    """The cursor of a list is invalid or has expired. List again without it."""

    code = "invalid_cursor"


class TemplateNotFound(ProviderError):
    """The SandboxTemplate doesn't exist."""

    code = "template_not_found"


class WarmPoolNotFound(ProviderError):
    """The SandboxWarmPool doesn't exist, or no pool uses the template and none can be created."""

    code = "warm_pool_not_found"


class ControllerMissing(ProviderError):
    """The cluster doesn't have the agent-sandbox CRDs."""

    code = "controller_missing"


class SandboxSuspended(ProviderError):
    """The sandbox is suspended and has to be resumed."""

    code = "suspended"


class PermissionDenied(OperationError, ProviderError, PermissionError):
    """The sandbox's user has no permission for `path`, or the account has none in the cluster.

    In the latter case `code` is `forbidden`, `path` is None, and the message names the missing RBAC verb and resource.
    """

    code = "forbidden"


AccessDenied = PermissionDenied
"""The former name of `PermissionDenied` for failures in the sandbox."""


class ConfigError(PodbayError, ValueError):
    """A setting is unknown or invalid."""

    code = "config"


class LocalFileError(PodbayError, OSError):
    """A file on this machine can't be read or written."""

    code = "local_file"


class ForkError(PodbayError, RuntimeError):
    """The process was forked from one that used Podbay, whose threads and connections stayed with the parent."""
