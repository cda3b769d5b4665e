"""The backend of modes raw and local."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import podbay
from podbay.compat._operation_log import FirstCharacters, LoggedSandbox
from podbay.compat.langchain_kubernetes import _settings
from podbay.compat.langchain_kubernetes._provider_base import translated
from podbay.deepagents import PodbaySandbox

if TYPE_CHECKING:
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse

    from podbay.compat.langchain_kubernetes.config import KubernetesProviderConfig

_TTL = _settings.LABEL_PREFIX + "ttl-seconds"
_log = FirstCharacters("langchain_kubernetes.backends.raw")


class RawSandbox(LoggedSandbox):
    """A backend that logs the beginning of each command."""

    _operation_log = _log


def backend_type(config: KubernetesProviderConfig) -> type[PodbaySandbox]:
    """Returns the backend for a mode: langchain-kubernetes logs no commands of agent-sandbox's."""
    return PodbaySandbox if config.mode == "agent-sandbox" else RawSandbox


class RawK8sBackend:
    """Runs commands and transfers files in a sandbox of Podbay.

    `create` and `reconnect` return one. `native` is Podbay's own backend, which has all file operations.
    """

    def __init__(self, *, sandbox: podbay.Sandbox, config: KubernetesProviderConfig) -> None:
        self._sandbox = sandbox
        self.native = backend_type(config)(sandbox=sandbox, timeout=config.default_exec_timeout)

    def __repr__(self) -> str:
        return f"RawK8sBackend({self.id!r})"

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self._sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command. After `timeout` seconds it returns exit code 124 and the output so far."""
        return self.native.execute(command, timeout=timeout)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """The async version of `execute`."""
        return await self.native.aexecute(command, timeout=timeout)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files at absolute paths; returns one response per file, in order."""
        return self.native.upload_files(files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files at absolute paths; returns one response per file, in order."""
        return self.native.download_files(paths)

    def cleanup(self) -> None:
        """Deletes the sandbox and everything that belongs to it. It isn't an error if it no longer exists."""
        _log.logger.info("Cleaning up raw sandbox %s", self.id)
        with translated():
            self._sandbox.destroy()

    @classmethod
    def create(
        cls,
        config: KubernetesProviderConfig,
        sandbox_id: str | None = None,
        extra_labels: dict[str, Any] | None = None,
        extra_annotations: dict[str, str] | None = None,
        ttl_idle_seconds: int | None = None,
    ) -> Self:
        """Creates a sandbox and waits until it is running."""
        annotations = dict(extra_annotations or {})
        ttl = annotations.pop(_TTL, None) or config.ttl_seconds
        settings = _settings.settings(config)
        if annotations and config.mode != "local":
            settings["extra_annotations"] = {**config.extra_annotations, **annotations}
        idle = ttl_idle_seconds if ttl_idle_seconds is not None else config.ttl_idle_seconds
        labels = _settings.labels(config, extra_labels)
        with translated():
            provider = podbay.Provider(**settings)
            sandbox = provider.get_or_create(
                sandbox_id, labels=labels, ttl=None if ttl is None else float(ttl), idle_ttl=idle
            )
        return cls(sandbox=sandbox, config=config)

    @classmethod
    def claim_warm_pod(
        cls,
        config: KubernetesProviderConfig,
        extra_labels: dict[str, Any] | None = None,
        extra_annotations: dict[str, str] | None = None,
        ttl_idle_seconds: int | None = None,
    ) -> Self | None:
        """Claims a sandbox from the warm pool; returns None if no pod is available."""
        with translated():
            waiting = podbay.Provider(**_settings.settings(config)).pool_status().available
        if not waiting:
            return None
        return cls.create(config, None, extra_labels, extra_annotations, ttl_idle_seconds)

    @classmethod
    def reconnect(cls, config: KubernetesProviderConfig, sandbox_id: str) -> Self:
        """Returns the sandbox with this id; raises `SandboxNotFoundError` if it no longer exists."""
        with translated():
            sandbox = podbay.Provider(**_settings.settings(config)).reconnect(sandbox_id)
        return cls(sandbox=sandbox, config=config)
