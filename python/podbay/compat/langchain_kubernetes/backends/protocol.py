"""What a `KubernetesSandbox` needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse


@runtime_checkable
class KubernetesBackendProtocol(Protocol):
    """A place where commands run and files are."""

    @property
    def id(self) -> str:
        """Its name."""
        ...

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a line in the shell; `timeout` is in seconds."""
        ...

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """As `execute`."""
        ...

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, at absolute paths."""
        ...

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files, at absolute paths."""
        ...

    def cleanup(self) -> None:
        """Removes the place; also a second time."""
        ...
