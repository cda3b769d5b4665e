"""A handle to a sandbox."""

from __future__ import annotations

import posixpath
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import podbay
from podbay.compat.k8s_agent_sandbox.exceptions import SandboxNotFoundError, translated
from podbay.compat.k8s_agent_sandbox.models import ExecutionResult, FileEntry, SandboxLocalTunnelConnectionConfig
from podbay.compat.k8s_agent_sandbox.tracing import Tracing

if TYPE_CHECKING:
    from collections.abc import Callable


class Sandbox:
    """A handle to a sandbox, which `SandboxClient` returns."""

    def __init__(
        self,
        native: podbay.Sandbox,
        namespace: str,
        connection_config: Any = None,
        podbay_settings: dict[str, Any] | None = None,
        tracing: Tracing | None = None,
        on_delete: Callable[[Sandbox], None] | None = None,
    ) -> None:
        self.native = native
        """The `podbay.Sandbox` behind this one."""
        self.claim_name: str | None = native.id
        self.sandbox_id = native.id
        self.namespace = namespace
        self.connection_config = connection_config or SandboxLocalTunnelConnectionConfig()
        self.podbay_settings = podbay_settings or {}
        """The settings with which Podbay reaches its cluster."""
        self._commands: CommandExecutor | None = CommandExecutor(native, tracing)
        self._files: Filesystem | None = Filesystem(native, tracing)
        self._on_delete = on_delete

    def __repr__(self) -> str:
        return f"Sandbox({self.claim_name!r}, namespace={self.namespace!r})"

    @property
    def commands(self) -> CommandExecutor | None:
        """Runs commands; None after the connection was closed."""
        return self._commands

    @property
    def files(self) -> Filesystem | None:
        """Reads and writes files; None after the connection was closed."""
        return self._files

    @property
    def is_active(self) -> bool:
        """Whether the connection wasn't closed."""
        return self._commands is not None

    def status(self) -> tuple[str, str]:
        """Returns `SandboxReady`, `SandboxNotReady` or `SandboxNotFound`, and a message."""
        try:
            self.native.hello()
        except (podbay.SandboxNotFound, podbay.PodGone) as error:
            return "SandboxNotFound", str(error)
        except podbay.PodbayError as error:
            return "SandboxNotReady", str(error)
        return "SandboxReady", ""

    def close_connection(self) -> None:
        """Closes the connection. The sandbox stays."""
        self._commands = self._files = None
        self.native.disconnect()

    def terminate(self) -> None:
        """Deletes the sandbox. It isn't an error if it no longer exists."""
        self.close_connection()
        if self.claim_name is not None:
            with translated():
                self.native.destroy()
            self.claim_name = None
            if self._on_delete is not None:
                self._on_delete(self)


class CommandExecutor:
    """Runs commands, in a shell."""

    def __init__(self, native: podbay.Sandbox, tracing: Tracing | None = None) -> None:
        self._native = native
        self._tracing = tracing or Tracing()

    def run(self, command: str, timeout: int = 60) -> ExecutionResult:
        """Runs a shell command. After `timeout` seconds it returns exit code 124 and the output so far."""
        # Not the whole command: it may contain secrets.
        executable = (command.split() or [""])[0]
        with self._tracing.span("run", executable=executable) as span, translated():
            result = self._native.run(command, timeout=timeout)
            # -1 is the SDK's value for an outcome that isn't known.
            code = -1 if result.exit_code is None else result.exit_code
            span.set(exit_code=code)
        return ExecutionResult(stdout=result.stdout, stderr=result.stderr, exit_code=code, timed_out=result.timed_out)


class Filesystem:
    """Reads and writes files."""

    def __init__(self, native: podbay.Sandbox, tracing: Tracing | None = None) -> None:
        self._native = native
        self._tracing = tracing or Tracing()

    def write(self, path: str, content: bytes | str, timeout: int = 60) -> None:  # noqa: ARG002
        """Creates or replaces a file."""
        with self._tracing.span("write", path=path, size=len(content)):
            self._native.write(path, content)

    def read(self, path: str, timeout: int = 60) -> bytes:  # noqa: ARG002
        """Returns a file's content."""
        with self._tracing.span("read", path=path) as span:
            [got] = self._native.download([path])
            if got.error is not None:
                raise got.error
            content = got.content or b""
            span.set(size=len(content))
        return content

    def list(self, path: str, timeout: int = 60) -> list[FileEntry]:  # noqa: ARG002
        """Lists a directory."""
        with self._tracing.span("list", path=path) as span:
            entries = self._native.ls(path).entries
            span.set(count=len(entries))
        return [
            FileEntry(
                name=posixpath.basename(entry.path),
                size=entry.size,
                type="directory" if entry.is_dir else "file",
                modified=datetime.fromtimestamp(entry.modified, UTC),
            )
            for entry in entries
        ]

    def exists(self, path: str, timeout: int = 60) -> bool:  # noqa: ARG002
        """Whether there is a file or directory."""
        with self._tracing.span("exists", path=path) as span:
            try:
                self._native.stat(path)
                found = True
            except podbay.NotFound:
                found = False
            span.set(exists=found)
        return found

    def delete(self, path: str, timeout: int = 60) -> None:  # noqa: ARG002
        """Deletes a file, or a directory with its contents."""
        with self._tracing.span("delete", path=path):
            self._native.delete(path)


def missing(claim_name: str, namespace: str) -> SandboxNotFoundError:
    """Returns the error for a claim that doesn't exist."""
    return SandboxNotFoundError(f"there is no sandbox {claim_name!r} in the namespace {namespace!r}")
