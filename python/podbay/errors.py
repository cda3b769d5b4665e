"""Exceptions, with the same names as in Rust.

All derive from `PodbayError`, and from a built-in exception where one fits: a missing file is also a
`FileNotFoundError`, an unreachable sandbox also a `ConnectionError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podbay._native import ExecResult

__all__ = [
    "AlreadyExists",
    "BadAnswer",
    "ClosedError",
    "CommandFailed",
    "ConfigError",
    "DeadlineExceeded",
    "ForkError",
    "IsDirectory",
    "LocalFileError",
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
    "StartupFailed",
    "StartupTimeout",
    "Unreachable",
    "VersionMismatch",
]


class PodbayError(Exception):
    """The base of all of Podbay's exceptions."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class OperationError(PodbayError):
    """An operation failed in the sandbox.

    `code` is for programs (`not_found`, `string_not_unique`, …; docs/protocol.md lists them). `path` is the path that
    the failure is about. `count` depends on the code: how many lines a file has that is shorter than the offset, how
    often a text occurs that isn't unique, the size of a file that is too large. `errno` is the kernel's error number if
    a program couldn't be started.
    """

    def __init__(
        self,
        message: str,
        code: str = "unknown",
        path: str | None = None,
        count: int | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.path = path
        self.count = count
        self.errno = errno

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.code, self.path, self.count, self.errno)


class NotFound(OperationError, FileNotFoundError):
    """The path doesn't exist."""


class AlreadyExists(OperationError, FileExistsError):
    """The path exists, and the caller asked not to replace it."""


class IsDirectory(OperationError, IsADirectoryError):
    """The path is a directory, but the operation needs a file."""


class NotADirectory(OperationError, NotADirectoryError):
    """The path, or one of its parents, isn't a directory."""


class PolicyDenied(OperationError, PermissionError):
    """A rule on paths or commands forbids the operation, or the path leaves the root directory."""


class OperationTimedOut(OperationError, TimeoutError):
    """The operation took too long. A command that times out isn't an exception; its result says so."""


class CommandFailed(PodbayError):
    """`ExecResult.check` was called on a command that failed."""

    def __init__(self, message: str, result: ExecResult) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.result)


class Unreachable(PodbayError, ConnectionError):
    """The sandbox or the cluster can't be reached, even after retrying for a while."""


class SandboxRestarted(PodbayError):
    """The sandbox was restarted during an operation that changes something, which may or may not have taken effect."""


class DeadlineExceeded(PodbayError, TimeoutError):
    """A command should have timed out long ago, but the sandbox doesn't answer: the command may still be running."""


class VersionMismatch(OperationError):
    """Client and sandbox speak different versions of the protocol."""


class BadAnswer(PodbayError):
    """The sandbox sent an invalid response."""


class SandboxNotFound(PodbayError, LookupError):
    """The sandbox doesn't exist."""


class ClosedError(PodbayError):
    """The object is closed, or its sandbox was deleted."""


class ProviderError(PodbayError):
    """A sandbox can't be created, found or deleted."""


class StartupFailed(ProviderError):
    """The sandbox's pod can't start. The message has the reason and the pod's events."""


class StartupTimeout(ProviderError, TimeoutError):
    """The sandbox's pod didn't start in time. The message has the pod's events."""


class PodGone(ProviderError):
    """The sandbox's pod no longer exists."""


class PermissionDenied(OperationError, ProviderError, PermissionError):
    """The sandbox's user may not do that to `path`, or the account may not do that on the cluster.

    On a cluster `path` is None, and the message names the verb and the resource.
    """


class ConfigError(PodbayError, ValueError):
    """A setting is unknown or invalid."""


class LocalFileError(PodbayError, OSError):
    """A file on this machine can't be read or written."""


class ForkError(PodbayError, RuntimeError):
    """The process was forked from one that used Podbay, whose threads and connections stayed with the parent."""
