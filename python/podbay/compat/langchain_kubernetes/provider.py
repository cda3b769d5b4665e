"""Creates, finds, lists and deletes sandboxes."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import podbay
from podbay.compat.langchain_kubernetes import _settings
from podbay.compat.langchain_kubernetes._provider_base import SandboxNotFoundError, SandboxProvider, translated
from podbay.compat.langchain_kubernetes._types import (
    CleanupResult,
    ProviderStats,
    SandboxInfo,
    SandboxListResponse,
    WarmPoolStatus,
)
from podbay.compat.langchain_kubernetes.backends.raw import RawK8sBackend
from podbay.compat.langchain_kubernetes.sandbox import KubernetesSandbox

if TYPE_CHECKING:
    import builtins

    from podbay.compat.langchain_kubernetes.config import KubernetesProviderConfig

# The original's name, for which programs may have set a level.
logger = logging.getLogger("langchain_kubernetes.provider")

_STATUS = ("running", "warm", "pending", "terminated")


class KubernetesProvider(SandboxProvider):
    """Creates and finds sandboxes. It keeps no state: store `sandbox.id`, with which any process can reconnect.

    Creating a provider does no I/O.
    """

    def __init__(self, config: KubernetesProviderConfig) -> None:
        self._config = config
        self.core = podbay.Provider(**_settings.settings(config))
        """The `podbay.Provider` behind this one."""

    def __repr__(self) -> str:
        return f"KubernetesProvider(mode={self._config.mode!r}, namespace={self._config.namespace!r})"

    def get_or_create(
        self,
        *,
        sandbox_id: str | None = None,
        labels: dict[str, str] | None = None,
        ttl_seconds: int | None = None,
        ttl_idle_seconds: int | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> KubernetesSandbox:
        """Returns the sandbox with this id, or a new one if it doesn't exist; its `id` tells which.

        Labels and TTLs apply to new sandboxes. Label keys get the prefix `langchain-kubernetes.bitkaio.com/`.
        """
        if sandbox_id is not None:
            try:
                return self.reconnect(sandbox_id)
            except SandboxNotFoundError:
                logger.info("the sandbox %s no longer exists, creating a new one", sandbox_id)
        with translated():
            sandbox = self.core.get_or_create(**self._wanted(labels, ttl_seconds, ttl_idle_seconds))
        return self._created(sandbox)

    async def aget_or_create(
        self,
        *,
        sandbox_id: str | None = None,
        labels: dict[str, str] | None = None,
        ttl_seconds: int | None = None,
        ttl_idle_seconds: int | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> KubernetesSandbox:
        """The async version of `get_or_create`."""
        if sandbox_id is not None:
            try:
                return await self.areconnect(sandbox_id)
            except SandboxNotFoundError:
                logger.info("the sandbox %s no longer exists, creating a new one", sandbox_id)
        with translated():
            sandbox = await self.core.aget_or_create(**self._wanted(labels, ttl_seconds, ttl_idle_seconds))
        return self._created(sandbox)

    def reconnect(self, sandbox_id: str) -> KubernetesSandbox:
        """Returns the sandbox with this id; raises `SandboxNotFoundError` if it no longer exists."""
        with translated():
            sandbox = self.core.reconnect(sandbox_id)
        return self._reconnected(sandbox)

    async def areconnect(self, sandbox_id: str) -> KubernetesSandbox:
        """The async version of `reconnect`."""
        with translated():
            sandbox = await self.core.areconnect(sandbox_id)
        return self._reconnected(sandbox)

    def list(
        self,
        cursor: str | None = None,
        *,
        labels: dict[str, str] | None = None,
        status: str | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> SandboxListResponse:
        """Lists one page of sandboxes, optionally only those with these labels and this status."""
        with translated():
            return self._listed(self.core.list(**_query(cursor, labels, status)))

    async def alist(
        self,
        cursor: str | None = None,
        *,
        labels: dict[str, str] | None = None,
        status: str | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> SandboxListResponse:
        """The async version of `list`."""
        with translated():
            return self._listed(await self.core.alist(**_query(cursor, labels, status)))

    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:  # noqa: ARG002
        """Deletes a sandbox and everything that belongs to it. It isn't an error if it no longer exists."""
        with translated():
            self.core.delete(sandbox_id)
        logger.info("Deleted sandbox %s", sandbox_id)

    async def adelete(self, *, sandbox_id: str, **kwargs: Any) -> None:  # noqa: ARG002
        """The async version of `delete`."""
        with translated():
            await self.core.adelete(sandbox_id)
        logger.info("Deleted sandbox %s", sandbox_id)

    def cleanup(self, max_idle_seconds: int | None = None) -> CleanupResult:
        """Deletes expired sandboxes, and those that have been idle for `max_idle_seconds`."""
        with translated():
            return _cleaned(self.core.cleanup(max_idle_seconds))

    async def acleanup(self, max_idle_seconds: int | None = None) -> CleanupResult:
        """The async version of `cleanup`."""
        with translated():
            return _cleaned(await self.core.acleanup(max_idle_seconds))

    def stats(self, idle_threshold_seconds: int = 300) -> ProviderStats:
        """Counts the sandboxes."""
        found: list[SandboxInfo] = []
        page = self.list()
        while True:
            found += page.sandboxes
            if page.cursor is None:
                return _counted(found, idle_threshold_seconds)
            page = self.list(page.cursor)

    async def astats(self, idle_threshold_seconds: int = 300) -> ProviderStats:
        """The async version of `stats`."""
        found: list[SandboxInfo] = []
        page = await self.alist()
        while True:
            found += page.sandboxes
            if page.cursor is None:
                return _counted(found, idle_threshold_seconds)
            page = await self.alist(page.cursor)

    def pool_status(self) -> WarmPoolStatus:
        """Returns how many pods of the warm pool are available and in use."""
        with translated():
            return _pool(self.core.pool_status())

    async def apool_status(self) -> WarmPoolStatus:
        """The async version of `pool_status`."""
        with translated():
            return _pool(await self.core.apool_status())

    def _wanted(
        self, labels: dict[str, str] | None, ttl_seconds: int | None, ttl_idle_seconds: int | None
    ) -> dict[str, Any]:
        config = self._config
        return {
            "labels": _settings.labels(config, labels),
            "ttl": ttl_seconds if ttl_seconds is not None else config.ttl_seconds,
            "idle_ttl": ttl_idle_seconds if ttl_idle_seconds is not None else config.ttl_idle_seconds,
        }

    def _created(self, sandbox: podbay.Sandbox) -> KubernetesSandbox:
        mode, namespace = self._config.mode, self._config.namespace
        logger.info("Created sandbox %s (mode=%s, namespace=%s)", sandbox.id, mode, namespace)
        return self._wrapped(sandbox)

    def _reconnected(self, sandbox: podbay.Sandbox) -> KubernetesSandbox:
        logger.info("Reconnected to sandbox %s (mode=%s)", sandbox.id, self._config.mode)
        return self._wrapped(sandbox)

    def _wrapped(self, sandbox: podbay.Sandbox) -> KubernetesSandbox:
        return KubernetesSandbox(backend=RawK8sBackend(sandbox=sandbox, config=self._config))

    def _listed(self, page: podbay.Page) -> SandboxListResponse:
        return SandboxListResponse([self._info(listed) for listed in page], page.cursor)

    def _info(self, listed: podbay.Listed) -> SandboxInfo:
        created = _moment(listed.created)
        active = None if listed.active is None else _moment(listed.active)
        annotations = {
            "created-at": created,
            "last-activity": active,
            "ttl-seconds": _seconds(listed.ttl),
            "ttl-idle-seconds": _seconds(listed.idle_ttl),
        }
        return SandboxInfo(
            id=listed.id,
            namespace=listed.namespace or self._config.namespace,
            thread_id=listed.labels.get(_settings.THREAD_ID),
            labels={_settings.LABEL_PREFIX + key: value for key, value in listed.labels.items()},
            annotations={
                _settings.LABEL_PREFIX + key: value for key, value in annotations.items() if value is not None
            },
            created_at=created,
            last_activity=active,
            status=listed.phase,
        )


def _query(cursor: str | None, labels: dict[str, str] | None, status: str | None) -> dict[str, Any]:
    if status is not None and status not in _STATUS:
        raise ValueError(f"Unknown status: {status!r}. Use one of {', '.join(_STATUS)}.")
    wanted = {_settings.without_prefix(key): value for key, value in (labels or {}).items()}
    return {"labels": wanted | _settings.MANAGED_BY, "status": status, "cursor": cursor}


def _seconds(limit: float | None) -> str | None:
    return None if limit is None else str(int(limit))


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _cleaned(cleaned: podbay.Cleaned) -> CleanupResult:
    for sandbox_id, why in cleaned.failed:
        logger.warning("the expired sandbox %s couldn't be deleted: %s", sandbox_id, why)
    return CleanupResult(deleted=cleaned.deleted, kept=cleaned.kept)


def _counted(found: builtins.list[SandboxInfo], idle_threshold_seconds: int) -> ProviderStats:
    now = datetime.now(UTC)
    idle = unnamed = 0
    named: set[str] = set()
    scoped = {_settings.LABEL_PREFIX + key: value for key, value in _settings.THREAD_SCOPED.items()}.items()
    for info in found:
        last = info.last_activity or info.created_at
        quiet = last is not None and (now - datetime.fromisoformat(last)).total_seconds() > idle_threshold_seconds
        idle += info.status == "running" and quiet
        if info.thread_id is not None:
            named.add(info.thread_id)
        else:
            # Sandboxes of threads from before their names were labels.
            unnamed += scoped <= info.labels.items()
    status = [info.status for info in found]
    return ProviderStats(
        total=len(found),
        running=status.count("running"),
        warm=status.count("warm"),
        idle=idle,
        thread_ids=unnamed + len(named),
    )


def _pool(status: Any) -> WarmPoolStatus:
    return WarmPoolStatus(status.available, status.active, status.total, status.target)
