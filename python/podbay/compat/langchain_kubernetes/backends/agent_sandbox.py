"""The backend of mode agent-sandbox, for programs that create one from a handle of the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import podbay
from podbay.compat._claims import attachment
from podbay.compat.langchain_kubernetes._provider_base import translated
from podbay.compat.langchain_kubernetes.backends.raw import RawK8sBackend
from podbay.compat.langchain_kubernetes.config import KubernetesProviderConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse


class AgentSandboxBackend(RawK8sBackend):
    """Runs commands and transfers files in a sandbox of the agent-sandbox controller.

    `client` is the sandbox's handle, a `k8s_agent_sandbox.Sandbox`. `activity_callback` is called after every command.
    """

    def __init__(self, *, client: Any, sandbox_name: str, activity_callback: Callable[[], None] | None = None) -> None:
        with translated():
            sandbox = podbay.Sandbox(**attachment(client))
        # The limits of commands are the config's; its other fields describe sandboxes to create.
        super().__init__(sandbox=sandbox, config=KubernetesProviderConfig(template_name="unused"))
        self._client = client
        self._name = sandbox_name
        self._activity_callback = activity_callback

    def __repr__(self) -> str:
        return f"AgentSandboxBackend({self.id!r})"

    @property
    def id(self) -> str:
        """The sandbox's name."""
        return self._name

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command. After `timeout` seconds it returns exit code 124 and the output so far."""
        response = super().execute(command, timeout=timeout)
        self._used()
        return response

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """The async version of `execute`."""
        response = await super().aexecute(command, timeout=timeout)
        self._used()
        return response

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files at absolute paths; returns one response per file, in order."""
        return super().upload_files(files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files at absolute paths; returns one response per file, in order."""
        return super().download_files(paths)

    def cleanup(self) -> None:
        """Deletes the sandbox through its handle. It isn't an error if it no longer exists."""
        self._client.terminate()

    def _used(self) -> None:
        if self._activity_callback is not None:
            self._activity_callback()
