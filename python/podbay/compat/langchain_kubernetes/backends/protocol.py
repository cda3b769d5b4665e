"""The interface that a `KubernetesSandbox` needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse


@runtime_checkable
class KubernetesBackendProtocol(Protocol):
    """Runs commands and transfers files."""

    @property
    def id(self) -> str:
        """The sandbox's id."""
        ...

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command; `timeout` is in seconds."""
        ...

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """The async version of `execute`."""
        ...

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files at absolute paths."""
        ...

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files at absolute paths."""
        ...

    def cleanup(self) -> None:
        """Deletes the sandbox. It isn't an error if it no longer exists."""
        ...
