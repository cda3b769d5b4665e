"""What the replaced packages write to Python's log about commands and transfers.

The loggers have the originals' names, because programs have set levels and handlers for these. A file's content is
never logged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from podbay.deepagents import PodbaySandbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deepagents.backends.protocol import (
        ExecuteOffloadResult,
        ExecuteResponse,
        FileDownloadResponse,
        FileUploadResponse,
    )

_SHOWN: Final = 120
"""How many characters of a command langchain-kubernetes logs."""


class OperationLog:
    """Is told of a backend's operations, and logs none of them."""

    def __init__(self, logger: str) -> None:
        self.logger = logging.getLogger(logger)

    def command(self, sandbox: str, command: str, timeout: float) -> None:
        """Called before a command."""

    def response(self, sandbox: str, response: ExecuteResponse) -> None:
        """Called after a command."""

    def transfers(self, sandbox: str, operation: str, files: Sequence[tuple[str, int | None, str | None]]) -> None:
        """Called after transfers, with each file's path, size and error."""


class WholeCommands(OperationLog):
    """Logs commands in full, how they ended, and transfers, as langchain-k8s does."""

    def command(self, sandbox: str, command: str, timeout: float) -> None:
        """Logs a command."""
        self.logger.debug("execute: sandbox=%s command=%r timeout=%g", sandbox, command, timeout)

    def response(self, sandbox: str, response: ExecuteResponse) -> None:
        """Logs how a command ended."""
        code, length, truncated = response.exit_code, len(response.output), response.truncated
        self.logger.debug(
            "execute: sandbox=%s exit_code=%s output_len=%d truncated=%s", sandbox, code, length, truncated
        )

    def transfers(self, sandbox: str, operation: str, files: Sequence[tuple[str, int | None, str | None]]) -> None:
        """Logs each file's path and size, or why it failed."""
        if not self.logger.isEnabledFor(logging.DEBUG):
            # There may be thousands of them.
            return
        self.logger.debug("%s: sandbox=%s file_count=%d", operation, sandbox, len(files))
        for path, size, error in files:
            if error is None:
                self.logger.debug("%s: sandbox=%s path=%s size=%s OK", operation, sandbox, _line(path), size)
            else:
                self.logger.debug("%s: sandbox=%s path=%s failed (%s)", operation, sandbox, _line(path), error)


class FirstCharacters(OperationLog):
    """Logs the beginning of each command, as langchain-kubernetes does."""

    def command(self, sandbox: str, command: str, timeout: float) -> None:  # noqa: ARG002
        """Logs a command."""
        self.logger.debug("exec [%s] %s", sandbox, _line(command[:_SHOWN]))


class LoggedSandbox(PodbaySandbox):
    """A backend that tells an `OperationLog` of its commands and transfers."""

    _operation_log: OperationLog

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command. After `timeout` seconds it returns exit code 124 and the output so far."""
        self._operation_log.command(self.id, command, self._seconds(timeout))
        response = super().execute(command, timeout=timeout)
        self._operation_log.response(self.id, response)
        return response

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """The async version of `execute`."""
        self._operation_log.command(self.id, command, self._seconds(timeout))
        response = await super().aexecute(command, timeout=timeout)
        self._operation_log.response(self.id, response)
        return response

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
        if self.enable_capture_offload:
            # Otherwise `execute` logs it.
            self._operation_log.command(self.id, command, self._seconds(timeout))
        result = super().execute_with_offload(
            command,
            capture_path,
            max_inline_bytes=max_inline_bytes,
            max_capture_bytes=max_capture_bytes,
            timeout=timeout,
        )
        if self.enable_capture_offload:
            self._operation_log.response(self.id, result.response)
        return result

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
        if self.enable_capture_offload:
            self._operation_log.command(self.id, command, self._seconds(timeout))
        result = await super().aexecute_with_offload(
            command,
            capture_path,
            max_inline_bytes=max_inline_bytes,
            max_capture_bytes=max_capture_bytes,
            timeout=timeout,
        )
        if self.enable_capture_offload:
            self._operation_log.response(self.id, result.response)
        return result

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files at absolute paths; returns one response per file, in order."""
        return self._uploaded(files, super().upload_files(files))

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """The async version of `upload_files`."""
        return self._uploaded(files, await super().aupload_files(files))

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files at absolute paths; returns one response per file, in order."""
        return self._downloaded(super().download_files(paths))

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """The async version of `download_files`."""
        return self._downloaded(await super().adownload_files(paths))

    def _uploaded(
        self, files: list[tuple[str, bytes]], responses: list[FileUploadResponse]
    ) -> list[FileUploadResponse]:
        pairs = zip(files, responses, strict=True)
        told = [(path, len(content), response.error) for (path, content), response in pairs]
        self._operation_log.transfers(self.id, "upload_files", told)
        return responses

    def _downloaded(self, responses: list[FileDownloadResponse]) -> list[FileDownloadResponse]:
        told = [(each.path, None if each.content is None else len(each.content), each.error) for each in responses]
        self._operation_log.transfers(self.id, "download_files", told)
        return responses


def _line(text: str) -> str:
    """Returns a text that stays on its line of the log: a model may have written it."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
