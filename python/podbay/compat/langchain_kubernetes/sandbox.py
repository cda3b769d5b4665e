"""The sandbox as a Deep Agents backend."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from deepagents.backends.protocol import ReadResult
from deepagents.backends.sandbox import BaseSandbox

from podbay.compat.langchain_kubernetes.backends.raw import RawK8sBackend

if TYPE_CHECKING:
    from deepagents.backends.protocol import (
        DeleteResult,
        EditResult,
        ExecuteOffloadResult,
        ExecuteResponse,
        FileDownloadResponse,
        FileInfo,
        FileUploadResponse,
        GlobResult,
        GrepMatch,
        GrepResult,
        LsResult,
        WriteResult,
    )

    from podbay.compat.langchain_kubernetes.backends.protocol import KubernetesBackendProtocol


class ReadText(ReadResult):
    """A `ReadResult` that converts to text, because `read` used to return one: the file's content or the error."""

    @classmethod
    def of(cls, result: ReadResult) -> ReadText:
        """Converts a result of Deep Agents."""
        return cls(**{field.name: getattr(result, field.name) for field in fields(result)})

    def __str__(self) -> str:
        if self.error is not None:
            return f"Error: {self.error}"
        return self.file_data["content"] if self.file_data is not None else ""

    def __contains__(self, part: object) -> bool:
        return isinstance(part, str) and part in str(self)


class KubernetesSandbox(BaseSandbox):
    """A sandbox, created by `KubernetesProvider`.

    With Podbay's backend every operation is one request. Other backends only need the methods of
    `KubernetesBackendProtocol`: file operations are then Deep Agents' scripts, run by `execute`.
    """

    def __init__(self, *, backend: KubernetesBackendProtocol) -> None:
        self._backend = backend
        native = backend.native if isinstance(backend, RawK8sBackend) else _Scripts(backend)
        # Both have all methods of a backend; BaseSandbox is their common base.
        self._files: BaseSandbox = native
        self.enable_capture_offload = native.enable_capture_offload

    def __repr__(self) -> str:
        return f"KubernetesSandbox({self.id!r})"

    @property
    def id(self) -> str:
        """The sandbox's id. Pass it to `get_or_create` to reconnect."""
        return self._backend.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command. After `timeout` seconds it returns exit code 124 and the output so far."""
        return self._backend.execute(command, timeout=timeout)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """The async version of `execute`."""
        return await self._backend.aexecute(command, timeout=timeout)

    def execute_with_offload(
        self,
        command: str,
        capture_path: str,
        *,
        max_inline_bytes: int,
        max_capture_bytes: int | None = None,
        timeout: int | None = None,
    ) -> ExecuteOffloadResult:
        """Like `execute`, but saves a large output to a file and returns its beginning and end."""
        return self._files.execute_with_offload(
            command,
            capture_path,
            max_inline_bytes=max_inline_bytes,
            max_capture_bytes=max_capture_bytes,
            timeout=timeout,
        )

    async def aexecute_with_offload(
        self,
        command: str,
        capture_path: str,
        *,
        max_inline_bytes: int,
        max_capture_bytes: int | None = None,
        timeout: int | None = None,
    ) -> ExecuteOffloadResult:
        """The async version of `execute_with_offload`."""
        return await self._files.aexecute_with_offload(
            command,
            capture_path,
            max_inline_bytes=max_inline_bytes,
            max_capture_bytes=max_capture_bytes,
            timeout=timeout,
        )

    def ls(self, path: str) -> LsResult:
        """Lists a directory."""
        return self._files.ls(path)

    async def als(self, path: str) -> LsResult:
        """The async version of `ls`."""
        return await self._files.als(path)

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadText:
        """Reads lines of a file. `str()` of the result is their text."""
        return ReadText.of(self._files.read(file_path, offset, limit))

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadText:
        """The async version of `read`."""
        return ReadText.of(await self._files.aread(file_path, offset, limit))

    def write(self, file_path: str, content: str) -> WriteResult:
        """Creates or replaces a file, and creates missing parent directories."""
        return self._files.write(file_path, content)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """The async version of `write`."""
        return await self._files.awrite(file_path, content)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replaces a text that occurs once, or all occurrences."""
        return self._files.edit(file_path, old_string, new_string, replace_all)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """The async version of `edit`."""
        return await self._files.aedit(file_path, old_string, new_string, replace_all)

    def delete(self, file_path: str) -> DeleteResult:
        """Deletes a file, or a directory with its contents."""
        return self._files.delete(file_path)

    async def adelete(self, file_path: str) -> DeleteResult:
        """The async version of `delete`."""
        return await self._files.adelete(file_path)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Finds files by name."""
        return self._files.glob(pattern, path)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """The async version of `glob`."""
        return await self._files.aglob(pattern, path)

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Finds lines that contain a text."""
        return self._files.grep(pattern, path, glob, max_count=max_count)

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """The async version of `grep`."""
        return await self._files.agrep(pattern, path, glob, max_count=max_count)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files at absolute paths; returns one response per file, in order."""
        return self._files.upload_files(files)

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """The async version of `upload_files`."""
        return await self._files.aupload_files(files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files at absolute paths; returns one response per file, in order."""
        return self._files.download_files(paths)

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """The async version of `download_files`."""
        return await self._files.adownload_files(paths)

    # Methods that langchain-kubernetes documents, and that Deep Agents dropped in 0.7.

    def ls_info(self, path: str) -> list[FileInfo]:
        """Lists a directory; returns an empty list if it can't be listed."""
        return self.ls(path).entries or []

    async def als_info(self, path: str) -> list[FileInfo]:
        """The async version of `ls_info`."""
        return (await self.als(path)).entries or []

    def glob_info(self, pattern: str, path: str = "/") -> list[FileInfo]:
        """Finds files by name; returns an empty list if the search fails."""
        return self.glob(pattern, path).matches or []

    async def aglob_info(self, pattern: str, path: str = "/") -> list[FileInfo]:
        """The async version of `glob_info`."""
        return (await self.aglob(pattern, path)).matches or []

    def grep_raw(self, pattern: str, path: str | None = None, glob: str | None = None) -> list[GrepMatch] | str:
        """Finds lines that contain a text; returns an error message if the search fails."""
        return _matches_or_error(self.grep(pattern, path, glob))

    async def agrep_raw(self, pattern: str, path: str | None = None, glob: str | None = None) -> list[GrepMatch] | str:
        """The async version of `grep_raw`."""
        return _matches_or_error(await self.agrep(pattern, path, glob))


def _matches_or_error(found: GrepResult) -> list[GrepMatch] | str:
    return found.error if found.error is not None else found.matches or []


class _Scripts(BaseSandbox):
    """A custom backend, with Deep Agents' scripts for the file operations."""

    def __init__(self, backend: KubernetesBackendProtocol) -> None:
        self._backend = backend

    @property
    def id(self) -> str:
        return self._backend.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return self._backend.execute(command, timeout=timeout)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return await self._backend.aexecute(command, timeout=timeout)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return self._backend.upload_files(files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return self._backend.download_files(paths)
