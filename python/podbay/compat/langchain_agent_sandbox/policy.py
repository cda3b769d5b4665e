"""Rules and an audit log around a backend."""

from __future__ import annotations

import logging
import posixpath
from typing import TYPE_CHECKING, Any, Self

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    ExecuteResponse,
    FileUploadResponse,
    SandboxBackendProtocol,
    WriteResult,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from deepagents.backends.protocol import (
        FileDownloadResponse,
        FileInfo,
        GlobResult,
        GrepMatch,
        GrepResult,
        LsResult,
        ReadResult,
    )

    from podbay.compat.langchain_agent_sandbox.backend import AgentSandboxBackend

# The original's name, for which programs may have set a level.
logger = logging.getLogger("langchain_agent_sandbox.backend")

_COMMAND_DENIED = "Policy denied: command blocked by policy"


class SandboxPolicyWrapper(SandboxBackendProtocol):
    """A backend that refuses some changes and some commands, and reports changes and commands to an audit log.

    `deny_prefixes` are directories below which nothing may be written, edited, deleted or uploaded; each is compared
    with the path that the agent sees and with the one in the sandbox. `deny_commands` are texts that no command may
    contain. `audit_log` is called with the operation (`write`, `edit`, `delete`, `execute`, `upload`), its target and
    details; refused operations have `denied` in their details. If it raises, that is logged, and with `strict_audit`
    the operation is refused.

    This keeps an agent from mistakes, not from malice: a command can reach any path, and has many ways to be written.
    `podbay.Sandbox(deny_commands=…)` parses commands, and the sandbox itself is the boundary.
    """

    def __init__(
        self,
        backend: AgentSandboxBackend,
        deny_prefixes: list[str] | None = None,
        deny_commands: list[str] | None = None,
        audit_log: Callable[[str, str, dict[str, Any]], None] | None = None,
        *,
        strict_audit: bool = False,
    ) -> None:
        self._backend = backend
        self._deny_prefixes = [posixpath.normpath(prefix) for prefix in deny_prefixes or []]
        self._deny_commands = list(deny_commands or [])
        self._audit_log = audit_log
        self._strict_audit = strict_audit

    def __repr__(self) -> str:
        return f"SandboxPolicyWrapper({self._backend!r})"

    @property
    def id(self) -> str:
        """The backend's id."""
        return self._backend.id

    def __call__(self, _runtime: object = None) -> Self:
        """Returns itself, for code that creates its backend in a factory for each run."""
        return self

    def __enter__(self) -> Self:
        self._backend.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._backend.__exit__(kind, value, traceback)

    async def __aenter__(self) -> Self:
        await self._backend.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._backend.__aexit__(kind, value, traceback)

    # What only reads passes.

    def ls(self, path: str) -> LsResult:
        """Lists a directory."""
        return self._backend.ls(path)

    async def als(self, path: str) -> LsResult:
        """The async version of `ls`."""
        return await self._backend.als(path)

    def ls_info(self, path: str) -> list[FileInfo]:
        """Lists a directory; returns an empty list if it can't be listed."""
        return self._backend.ls_info(path)

    async def als_info(self, path: str) -> list[FileInfo]:
        """The async version of `ls_info`."""
        return await self._backend.als_info(path)

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Reads lines of a file."""
        return self._backend.read(file_path, offset, limit)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """The async version of `read`."""
        return await self._backend.aread(file_path, offset, limit)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Finds files by name."""
        return self._backend.glob(pattern, path)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """The async version of `glob`."""
        return await self._backend.aglob(pattern, path)

    def glob_info(self, pattern: str, path: str = "/") -> list[FileInfo]:
        """Finds files by name; returns an empty list if the search fails."""
        return self._backend.glob_info(pattern, path)

    async def aglob_info(self, pattern: str, path: str = "/") -> list[FileInfo]:
        """The async version of `glob_info`."""
        return await self._backend.aglob_info(pattern, path)

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Finds lines that contain a text."""
        return self._backend.grep(pattern, path, glob, max_count=max_count)

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """The async version of `grep`."""
        return await self._backend.agrep(pattern, path, glob, max_count=max_count)

    def grep_raw(self, pattern: str, path: str | None = None, glob: str | None = None) -> list[GrepMatch] | str:
        """Finds lines that contain a text; returns an error message if the search fails."""
        return self._backend.grep_raw(pattern, path, glob)

    async def agrep_raw(self, pattern: str, path: str | None = None, glob: str | None = None) -> list[GrepMatch] | str:
        """The async version of `grep_raw`."""
        return await self._backend.agrep_raw(pattern, path, glob)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files."""
        return self._backend.download_files(paths)

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """The async version of `download_files`."""
        return await self._backend.adownload_files(paths)

    # What changes something is checked.

    def write(self, file_path: str, content: str) -> WriteResult:
        """Creates a file, unless a rule denies it."""
        denied = self._checked("write", file_path, {"size": _size(content)})
        return WriteResult(error=denied) if denied else self._backend.write(file_path, content)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """The async version of `write`."""
        denied = self._checked("write", file_path, {"size": _size(content)})
        return WriteResult(error=denied) if denied else await self._backend.awrite(file_path, content)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replaces text in a file, unless a rule denies it."""
        denied = self._checked("edit", file_path, {"replace_all": replace_all})
        return (
            EditResult(error=denied) if denied else self._backend.edit(file_path, old_string, new_string, replace_all)
        )

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """The async version of `edit`."""
        denied = self._checked("edit", file_path, {"replace_all": replace_all})
        return (
            EditResult(error=denied)
            if denied
            else await self._backend.aedit(file_path, old_string, new_string, replace_all)
        )

    def delete(self, file_path: str) -> DeleteResult:
        """Deletes a file or directory, unless a rule denies it."""
        denied = self._checked("delete", file_path, {})
        return DeleteResult(error=denied) if denied else self._backend.delete(file_path)

    async def adelete(self, file_path: str) -> DeleteResult:
        """The async version of `delete`."""
        denied = self._checked("delete", file_path, {})
        return DeleteResult(error=denied) if denied else await self._backend.adelete(file_path)

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command, unless a rule denies it."""
        denied = self._checked_command(command)
        return _refused(denied) if denied else self._backend.execute(command, timeout=timeout)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """The async version of `execute`."""
        denied = self._checked_command(command)
        return _refused(denied) if denied else await self._backend.aexecute(command, timeout=timeout)

    def upload_files(self, files: list[tuple[str, bytes]] | Mapping[str, bytes]) -> list[FileUploadResponse]:
        """Writes files, except for those that a rule denies; returns one response per file, in order."""
        pairs, denied = self._sorted(files)
        sent = self._backend.upload_files([pair for pair, no in zip(pairs, denied, strict=True) if not no])
        return _in_order(pairs, denied, sent)

    async def aupload_files(self, files: list[tuple[str, bytes]] | Mapping[str, bytes]) -> list[FileUploadResponse]:
        """The async version of `upload_files`."""
        pairs, denied = self._sorted(files)
        sent = await self._backend.aupload_files([pair for pair, no in zip(pairs, denied, strict=True) if not no])
        return _in_order(pairs, denied, sent)

    def _sorted(
        self, files: list[tuple[str, bytes]] | Mapping[str, bytes]
    ) -> tuple[list[tuple[str, bytes]], list[str | None]]:
        pairs = files if isinstance(files, list) else list(dict(files).items())
        return pairs, [self._checked("upload", path, {"size": len(content)}) for path, content in pairs]

    def _checked(self, operation: str, path: str, details: dict[str, Any]) -> str | None:
        """Reports a change, and returns why it is denied if it is."""
        prefix = self._denying(path, with_parents=operation == "delete")
        denied = None if prefix is None else f"Policy denied: writes not allowed under '{prefix}'"
        return self._reported(operation, path, details, denied)

    def _checked_command(self, command: str) -> str | None:
        # Also with single spaces, so that `rm  -rf` is `rm -rf`.
        spaced = " ".join(command.split())
        found = any(text in command or text in spaced for text in self._deny_commands)
        return self._reported("execute", command, {}, _COMMAND_DENIED if found else None)

    def _denying(self, path: str, *, with_parents: bool) -> str | None:
        """The prefix that a path is below; for what deletes whole trees, also one that is below the path."""
        seen = posixpath.normpath("/" + path.lstrip("/"))
        inside = posixpath.normpath(f"{self._backend.root_dir}/{path.lstrip('/')}")
        for prefix in self._deny_prefixes:
            if any(_is_below(each, prefix) or (with_parents and _is_below(prefix, each)) for each in (seen, inside)):
                return prefix
        return None

    def _reported(self, operation: str, target: str, details: dict[str, Any], denied: str | None) -> str | None:
        if self._audit_log is None:
            return denied
        try:
            self._audit_log(operation, target, details if denied is None else {**details, "denied": denied})
        except Exception:
            logger.exception("the audit log failed for %s on %s", operation, target)
            if self._strict_audit and denied is None:
                return "Policy denied: the operation can't be recorded in the audit log"
        return denied


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _size(content: str) -> int:
    return len(content.encode("utf-8", "surrogatepass"))


def _refused(denied: str) -> ExecuteResponse:
    return ExecuteResponse(output=denied, exit_code=1)


def _in_order(
    pairs: list[tuple[str, bytes]], denied: list[str | None], sent: list[FileUploadResponse]
) -> list[FileUploadResponse]:
    rest = iter(sent)
    return [
        FileUploadResponse(path=path, error="policy_denied") if no else next(rest)
        for (path, _), no in zip(pairs, denied, strict=True)
    ]
