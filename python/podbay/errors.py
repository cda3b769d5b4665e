"""What can go wrong, under the names that it has in Rust.

Everything derives from `PodbayError`. Where Python has a word for a failure, ours is that too: a missing file is also a
`FileNotFoundError`, a sandbox that can't be reached also a `ConnectionError`.
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
    """Anything that Podbay reports."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class OperationError(PodbayError):
    """The sandbox answered that it can't.

    `code` is for programs (`not_found`, `string_not_unique`, …; docs/protocol.md lists them), `path` what it is about,
    and `count` a number that belongs to the failure: the lines of a file that is shorter than the offset, the
    occurrences of a text that isn't unique, the size of a file that is too large. `errno` is the kernel's number for a
    program that couldn't be started.
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
    """There is nothing at the path."""


class AlreadyExists(OperationError, FileExistsError):
    """Something is there already and the caller asked not to replace it."""


class IsDirectory(OperationError, IsADirectoryError):
    """A file was wanted and the path is a directory."""


class NotADirectory(OperationError, NotADirectoryError):
    """A directory was wanted and the path, or a part of it, is something else."""


class PolicyDenied(OperationError, PermissionError):
    """A rule on paths or commands forbids it, or leads out of the root."""


class OperationTimedOut(OperationError, TimeoutError):
    """The operation took longer than it may. A command whose time was up is no error: its result says so."""


class CommandFailed(PodbayError):
    """A command ended with another code than 0, and `ExecResult.check` was asked."""

    def __init__(self, message: str, result: ExecResult) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.result)


class Unreachable(PodbayError, ConnectionError):
    """The sandbox can't be reached, and trying again for a while didn't help."""


class SandboxRestarted(PodbayError):
    """The sandbox was restarted while something was being changed: it may have been changed or not."""


class DeadlineExceeded(PodbayError, TimeoutError):
    """A command's time was up long ago and the sandbox didn't say how it ended: it may still run."""


class VersionMismatch(OperationError):
    """The two sides speak different versions of the protocol."""


class BadAnswer(PodbayError):
    """What came from the sandbox isn't an answer."""


class SandboxNotFound(PodbayError, LookupError):
    """There is no such sandbox."""


class ClosedError(PodbayError):
    """The object was closed, or its sandbox deleted, before."""


class ProviderError(PodbayError):
    """A sandbox can't be made, found or removed."""


class StartupFailed(ProviderError):
    """The sandbox's pod can't start; the message has the reason and the pod's events."""


class StartupTimeout(ProviderError, TimeoutError):
    """The sandbox's pod wasn't running in time; the message has the pod's events."""


class PodGone(ProviderError):
    """The sandbox's pod isn't there any more."""


class PermissionDenied(OperationError, ProviderError, PermissionError):
    """The sandbox's user may not do that to `path`, or the account may not do that on the cluster.

    On a cluster `path` is None, and the message names the verb and the resource.
    """


class ConfigError(PodbayError, ValueError):
    """A setting is unknown or makes no sense."""


class LocalFileError(PodbayError, OSError):
    """A file of this machine can't be read or written."""


class ForkError(PodbayError, RuntimeError):
    """The process is a fork of one that used Podbay: threads and connections stayed with the parent."""
