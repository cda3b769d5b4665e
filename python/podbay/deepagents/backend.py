"""The backend: the methods that Deep Agents calls, each one request to a sandbox."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from deepagents.backends.protocol import (
    ASYNC_GLOB_TIMEOUT,
    ASYNC_GREP_TIMEOUT,
    INVALID_PATH,
    DeleteResult,
    EditResult,
    ExecuteOffloadResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox
from deepagents.backends.utils import EMPTY_OLD_STRING_ERROR

from podbay.deepagents import commands, failures, results
from podbay.deepagents.lifetime import Lifetime

_LATE = "Error: {what} timed out after {seconds}s. Try a more specific pattern or a narrower path."
_MANY_LINES = 1 << 53
_Fetched: TypeAlias = tuple[bytes | None, str | None]


class PodbaySandbox(Lifetime, BaseSandbox):
    """A Deep Agents backend that works in a sandbox.

    It takes the arguments of `podbay.Sandbox`: `PodbaySandbox()` runs on this machine,
    `PodbaySandbox(mode="raw", image="python:3.12-slim", namespace="agents")` in a pod. The sandbox is created by the
    first operation, or at the beginning of a `with` block, whose end deletes it unless `skip_cleanup` is set. If its
    pod disappears, the operation that notices fails and says so, and the next one gets a new sandbox. To use an
    existing sandbox, pass it as `sandbox`, or its id with `attach=True`; deleting it is then up to you.

    With `per_thread`, one object serves every conversation: each call goes to the sandbox of the `thread_id` in the
    current run's config. These sandboxes outlive the program; `ttl`, `idle_ttl` or `release` ends them.

    `timeout` applies to commands without a timeout of their own: seconds, or a text such as "5m"; 0 means no limit.
    `output_limit` is how many bytes of a command's output are returned; its beginning and end are kept.

    Operations never raise: failures are part of their results.
    """

    enable_capture_offload = True
    grep_exclude_dirs: tuple[str, ...] = (".git",)

    def ls(self, path: str) -> LsResult:
        """Lists a directory."""
        try:
            return results.ls(self._source.sandbox().ls(path))
        except Exception as failure:
            return failures.ls(path, self._noted(failure))

    async def als(self, path: str) -> LsResult:
        """Lists a directory."""
        try:
            return results.ls(await (await self._source.asandbox()).als(path))
        except Exception as failure:
            return failures.ls(path, self._noted(failure))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Reads a page of a file."""
        try:
            offset, limit = _lines(offset), _lines(limit)
            return results.read(self._source.sandbox().read(file_path, offset, limit, **results.PAGE))
        except Exception as failure:
            return failures.read(file_path, offset, self._noted(failure))

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Reads a page of a file."""
        try:
            offset, limit = _lines(offset), _lines(limit)
            sandbox = await self._source.asandbox()
            return results.read(await sandbox.aread(file_path, offset, limit, **results.PAGE))
        except Exception as failure:
            return failures.read(file_path, offset, self._noted(failure))

    def write(self, file_path: str, content: str) -> WriteResult:
        """Creates or replaces a file."""
        try:
            self._source.sandbox().write(file_path, content)
        except Exception as failure:
            return failures.write(file_path, self._noted(failure))
        return WriteResult(path=file_path)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """Creates or replaces a file."""
        try:
            await (await self._source.asandbox()).awrite(file_path, content)
        except Exception as failure:
            return failures.write(file_path, self._noted(failure))
        return WriteResult(path=file_path)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replaces text in a file."""
        if not old_string:
            return EditResult(error=EMPTY_OLD_STRING_ERROR)
        try:
            done = self._source.sandbox().edit(file_path, old_string, new_string, replace_all=replace_all)
        except Exception as failure:
            return failures.edit(file_path, old_string, self._noted(failure))
        return EditResult(path=file_path, occurrences=done.occurrences)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replaces text in a file."""
        if not old_string:
            return EditResult(error=EMPTY_OLD_STRING_ERROR)
        try:
            sandbox = await self._source.asandbox()
            done = await sandbox.aedit(file_path, old_string, new_string, replace_all=replace_all)
        except Exception as failure:
            return failures.edit(file_path, old_string, self._noted(failure))
        return EditResult(path=file_path, occurrences=done.occurrences)

    def delete(self, file_path: str) -> DeleteResult:
        """Deletes a file, a symbolic link, or a directory with its contents."""
        try:
            self._source.sandbox().delete(file_path)
        except Exception as failure:
            return failures.delete(file_path, self._noted(failure))
        return DeleteResult(path=file_path)

    async def adelete(self, file_path: str) -> DeleteResult:
        """Deletes a file, a symbolic link, or a directory with its contents."""
        try:
            await (await self._source.asandbox()).adelete(file_path)
        except Exception as failure:
            return failures.delete(file_path, self._noted(failure))
        return DeleteResult(path=file_path)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Finds files by name, by default in the working directory."""
        try:
            return results.glob(self._source.sandbox().glob(pattern, path or None))
        except Exception as failure:
            return failures.glob(path, self._noted(failure))

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Finds files by name, by default in the working directory."""
        try:
            async with asyncio.timeout(ASYNC_GLOB_TIMEOUT) as clock:
                sandbox = await self._source.asandbox()
                return results.glob(await sandbox.aglob(pattern, path or None))
        except Exception as failure:
            if clock.expired():
                return GlobResult(error=_LATE.format(what="glob", seconds=ASYNC_GLOB_TIMEOUT))
            return failures.glob(path, self._noted(failure))

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Finds lines that contain a literal text, by default in the working directory."""
        try:
            sandbox = self._source.sandbox()
            found = sandbox.grep(
                pattern, path or None, glob or None, max_count=max_count, exclude_dirs=self.grep_exclude_dirs
            )
            return results.grep(found)
        except Exception as failure:
            return failures.grep(path, glob, self._noted(failure))

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Finds lines that contain a literal text, by default in the working directory."""
        try:
            async with asyncio.timeout(ASYNC_GREP_TIMEOUT) as clock:
                sandbox = await self._source.asandbox()
                found = await sandbox.agrep(
                    pattern, path or None, glob or None, max_count=max_count, exclude_dirs=self.grep_exclude_dirs
                )
                return results.grep(found)
        except Exception as failure:
            if clock.expired():
                return GrepResult(error=_LATE.format(what="grep", seconds=ASYNC_GREP_TIMEOUT))
            return failures.grep(path, glob, self._noted(failure))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Uploads files concurrently; each has its own result."""
        absolute = [file for file in files if _is_absolute(file[0])]
        try:
            errors = [self._reason(sent.error) for sent in self._source.sandbox().upload(absolute)] if absolute else []
        except Exception as failure:
            errors = [self._reason(failure)] * len(absolute)
        return _uploads([path for path, _ in files], errors)

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Uploads files concurrently; each has its own result."""
        absolute = [file for file in files if _is_absolute(file[0])]
        try:
            sandbox = await self._source.asandbox()
            errors = [self._reason(sent.error) for sent in await sandbox.aupload(absolute)] if absolute else []
        except Exception as failure:
            errors = [self._reason(failure)] * len(absolute)
        return _uploads([path for path, _ in files], errors)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Downloads files concurrently; each has its own result."""
        absolute = [path for path in paths if _is_absolute(path)]
        fetched: list[_Fetched]
        try:
            downloads = self._source.sandbox().download(absolute) if absolute else []
            fetched = [(got.content, self._reason(got.error)) for got in downloads]
        except Exception as failure:
            fetched = [(None, self._reason(failure))] * len(absolute)
        return _downloads(paths, fetched)

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Downloads files concurrently; each has its own result."""
        absolute = [path for path in paths if _is_absolute(path)]
        fetched: list[_Fetched]
        try:
            sandbox = await self._source.asandbox()
            downloads = await sandbox.adownload(absolute) if absolute else []
            fetched = [(got.content, self._reason(got.error)) for got in downloads]
        except Exception as failure:
            fetched = [(None, self._reason(failure))] * len(absolute)
        return _downloads(paths, fetched)

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command. Standard output and standard error are combined in the order in which they were written."""
        seconds = self._seconds(timeout)
        try:
            sandbox = self._source.sandbox()
            result = sandbox.run(command, timeout=seconds, merge=True, output_limit=self._output_limit)
            return commands.response(result, seconds)
        except Exception as failure:
            return failures.execute(self._noted(failure))

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command. Standard output and standard error are combined in the order in which they were written."""
        seconds = self._seconds(timeout)
        try:
            sandbox = await self._source.asandbox()
            result = await sandbox.arun(command, timeout=seconds, merge=True, output_limit=self._output_limit)
            return commands.response(result, seconds)
        except Exception as failure:
            return failures.execute(self._noted(failure))

    def execute_with_offload(
        self,
        command: str,
        capture_path: str,
        *,
        max_inline_bytes: int,
        max_capture_bytes: int | None = None,
        timeout: int | None = None,
    ) -> ExecuteOffloadResult:
        """Runs a command; output over `max_inline_bytes` is saved to `capture_path`, and a preview is returned."""
        if not self.enable_capture_offload:
            return ExecuteOffloadResult(offloaded=False, response=self.execute(command, timeout=timeout))
        seconds, limit = self._seconds(timeout), _capture_limit(max_inline_bytes, max_capture_bytes)
        # The rest stays in the sandbox.
        fetched = max(max_inline_bytes, commands.EXCERPTS)
        try:
            sandbox = self._source.sandbox()
            result = sandbox.run(command, timeout=seconds, merge=True, output_limit=fetched)
            if result.output_bytes <= max_inline_bytes:
                return commands.inline(result, seconds)
            gap = commands.omission(result, limit)
            try:
                saved = sandbox.write_output_of(capture_path, result.info.id, limit=limit, gap=gap)
            except Exception as failure:
                return commands.unsaved(result, seconds, capture_path, max_inline_bytes, self._noted(failure))
            return commands.preview(result, saved, limit, seconds)
        except Exception as failure:
            return ExecuteOffloadResult(offloaded=False, response=failures.execute(self._noted(failure)))

    async def aexecute_with_offload(
        self,
        command: str,
        capture_path: str,
        *,
        max_inline_bytes: int,
        max_capture_bytes: int | None = None,
        timeout: int | None = None,
    ) -> ExecuteOffloadResult:
        """Runs a command; output over `max_inline_bytes` is saved to `capture_path`, and a preview is returned."""
        if not self.enable_capture_offload:
            return ExecuteOffloadResult(offloaded=False, response=await self.aexecute(command, timeout=timeout))
        seconds, limit = self._seconds(timeout), _capture_limit(max_inline_bytes, max_capture_bytes)
        # The rest stays in the sandbox.
        fetched = max(max_inline_bytes, commands.EXCERPTS)
        try:
            sandbox = await self._source.asandbox()
            result = await sandbox.arun(command, timeout=seconds, merge=True, output_limit=fetched)
            if result.output_bytes <= max_inline_bytes:
                return commands.inline(result, seconds)
            gap = commands.omission(result, limit)
            try:
                saved = await sandbox.awrite_output_of(capture_path, result.info.id, limit=limit, gap=gap)
            except Exception as failure:
                return commands.unsaved(result, seconds, capture_path, max_inline_bytes, self._noted(failure))
            return commands.preview(result, saved, limit, seconds)
        except Exception as failure:
            return ExecuteOffloadResult(offloaded=False, response=failures.execute(self._noted(failure)))

    def _reason(self, failure: Exception | None) -> str | None:
        return None if failure is None else failures.transfer(self._noted(failure))


def _uploads(paths: list[str], errors: list[str | None]) -> list[FileUploadResponse]:
    """Returns a response for each path, in order; `errors` has one item for each absolute path."""
    left = iter(errors)
    return [FileUploadResponse(path=path, error=next(left) if _is_absolute(path) else INVALID_PATH) for path in paths]


def _downloads(paths: list[str], fetched: list[_Fetched]) -> list[FileDownloadResponse]:
    """Returns a response for each path, in order; `fetched` has one item for each absolute path."""
    left = iter(fetched)
    responses = []
    for path in paths:
        content, error = next(left) if _is_absolute(path) else (None, INVALID_PATH)
        responses.append(FileDownloadResponse(path=path, content=content, error=error))
    return responses


def _is_absolute(path: str) -> bool:
    return path.startswith("/")


def _lines(number: int) -> int:
    """Limits a number of lines, which the model may have chosen freely, to what a file can have."""
    return min(max(int(number), 0), _MANY_LINES)


def _capture_limit(inline: int, capture: int | None) -> int:
    # What is returned inline must be complete, so the limit is never smaller than that.
    return max(inline, commands.CAPTURE_LIMIT if capture is None else capture)
