"""The sandbox as a backend of Deep Agents."""

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
    """What was read. As text it is the file's content, or says what went wrong: it used to be just that."""

    @classmethod
    def of(cls, result: ReadResult) -> ReadText:
        """The same result, with the text."""
        return cls(**{field.name: getattr(result, field.name) for field in fields(result)})

    def __str__(self) -> str:
        if self.error is not None:
            return f"Error: {self.error}"
        return self.file_data["content"] if self.file_data is not None else ""

    def __contains__(self, part: object) -> bool:
        return isinstance(part, str) and part in str(self)


class KubernetesSandbox(BaseSandbox):
    """A sandbox. `KubernetesProvider` makes them.

    On a backend of Podbay every operation is one request. A backend of one's own needs just what
    `KubernetesBackendProtocol` names: the file operations are then Deep Agents' scripts, run by its `execute`.
    """

    def __init__(self, *, backend: KubernetesBackendProtocol) -> None:
        self._backend = backend
        native = backend.native if isinstance(backend, RawK8sBackend) else _Scripts(backend)
        # Either has all the methods of a backend; BaseSandbox is what they have in common.
        self._files: BaseSandbox = native
        self.enable_capture_offload = native.enable_capture_offload

    def __repr__(self) -> str:
        return f"KubernetesSandbox({self.id!r})"

    @property
    def id(self) -> str:
        """The sandbox's id: keep it, and give it to `get_or_create` to come back."""
        return self._backend.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a line in the shell. Its time is up after `timeout` seconds: exit code 124 and the output so far."""
        return self._backend.execute(command, timeout=timeout)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """As `execute`."""
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
        """As `execute`; a large output is kept as a file, and the result has its beginning and end."""
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
        """As `execute_with_offload`."""
        return await self._files.aexecute_with_offload(
            command,
            capture_path,
            max_inline_bytes=max_inline_bytes,
            max_capture_bytes=max_capture_bytes,
            timeout=timeout,
        )

    def ls(self, path: str) -> LsResult:
        """What is in a directory."""
        return self._files.ls(path)

    async def als(self, path: str) -> LsResult:
        """As `ls`."""
        return await self._files.als(path)

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadText:
        """Lines of a file. `str()` of the result is their text."""
        return ReadText.of(self._files.read(file_path, offset, limit))

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadText:
        """As `read`."""
        return ReadText.of(await self._files.aread(file_path, offset, limit))

    def write(self, file_path: str, content: str) -> WriteResult:
        """Writes a file; parents are made, and what was there is replaced."""
        return self._files.write(file_path, content)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """As `write`."""
        return await self._files.awrite(file_path, content)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replaces a text that is there once, or all of them."""
        return self._files.edit(file_path, old_string, new_string, replace_all)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """As `edit`."""
        return await self._files.aedit(file_path, old_string, new_string, replace_all)

    def delete(self, file_path: str) -> DeleteResult:
        """Deletes a file, or a directory with all that is in it."""
        return self._files.delete(file_path)

    async def adelete(self, file_path: str) -> DeleteResult:
        """As `delete`."""
        return await self._files.adelete(file_path)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Files by their names."""
        return self._files.glob(pattern, path)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """As `glob`."""
        return await self._files.aglob(pattern, path)

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Lines that contain a text."""
        return self._files.grep(pattern, path, glob, max_count=max_count)

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """As `grep`."""
        return await self._files.agrep(pattern, path, glob, max_count=max_count)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, at absolute paths: one answer for each, in their order."""
        return self._files.upload_files(files)

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """As `upload_files`."""
        return await self._files.aupload_files(files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files, at absolute paths: one answer for each, in their order."""
        return self._files.download_files(paths)

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """As `download_files`."""
        return await self._files.adownload_files(paths)

    # Names that Deep Agents dropped in 0.7 and that langchain-kubernetes documents.

    def ls_info(self, path: str) -> list[FileInfo]:
        """What is in a directory, as a list; empty when it can't be listed."""
        return self.ls(path).entries or []

    async def als_info(self, path: str) -> list[FileInfo]:
        """As `ls_info`."""
        return (await self.als(path)).entries or []

    def glob_info(self, pattern: str, path: str = "/") -> list[FileInfo]:
        """Files by their names, as a list; empty when they can't be searched."""
        return self.glob(pattern, path).matches or []

    async def aglob_info(self, pattern: str, path: str = "/") -> list[FileInfo]:
        """As `glob_info`."""
        return (await self.aglob(pattern, path)).matches or []

    def grep_raw(self, pattern: str, path: str | None = None, glob: str | None = None) -> list[GrepMatch] | str:
        """Lines that contain a text, as a list; a text that says what went wrong."""
        return _matches_or_error(self.grep(pattern, path, glob))

    async def agrep_raw(self, pattern: str, path: str | None = None, glob: str | None = None) -> list[GrepMatch] | str:
        """As `grep_raw`."""
        return _matches_or_error(await self.agrep(pattern, path, glob))


def _matches_or_error(found: GrepResult) -> list[GrepMatch] | str:
    return found.error if found.error is not None else found.matches or []


class _Scripts(BaseSandbox):
    """A backend of someone's own, with Deep Agents' scripts for the file operations."""

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
