"""The backend of a sandbox in mode raw, and on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import podbay
from podbay.compat.langchain_kubernetes import _settings
from podbay.compat.langchain_kubernetes._provider_base import translated
from podbay.deepagents import PodbaySandbox

if TYPE_CHECKING:
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse

    from podbay.compat.langchain_kubernetes.config import KubernetesProviderConfig

_TTL = _settings.LABEL_PREFIX + "ttl-seconds"


class RawK8sBackend:
    """A sandbox's commands and files, over the one connection that Podbay keeps to it.

    `create` and `reconnect` make one; `native` is Podbay's own backend, with every file operation.
    """

    def __init__(self, *, sandbox: podbay.Sandbox, config: KubernetesProviderConfig) -> None:
        self._sandbox = sandbox
        self.native = PodbaySandbox(sandbox=sandbox, timeout=config.default_exec_timeout)

    def __repr__(self) -> str:
        return f"RawK8sBackend({self.id!r})"

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self._sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a line in the shell. Its time is up after `timeout` seconds: exit code 124 and the output so far."""
        return self.native.execute(command, timeout=timeout)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """As `execute`."""
        return await self.native.aexecute(command, timeout=timeout)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, at absolute paths: one answer for each, in their order."""
        return self.native.upload_files(files)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files, at absolute paths: one answer for each, in their order."""
        return self.native.download_files(paths)

    def cleanup(self) -> None:
        """Deletes the sandbox with all that belongs to it; also a second time."""
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
        """Makes a sandbox and waits until it runs."""
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
        """A sandbox from the pool, None when no pod waits there."""
        with translated():
            waiting = podbay.Provider(**_settings.settings(config)).pool_status().available
        if not waiting:
            return None
        return cls.create(config, None, extra_labels, extra_annotations, ttl_idle_seconds)

    @classmethod
    def reconnect(cls, config: KubernetesProviderConfig, sandbox_id: str) -> Self:
        """The sandbox with this id; `SandboxNotFoundError` when it isn't there any more."""
        with translated():
            sandbox = podbay.Provider(**_settings.settings(config)).reconnect(sandbox_id)
        return cls(sandbox=sandbox, config=config)
