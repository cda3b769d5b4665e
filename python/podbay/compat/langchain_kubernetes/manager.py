"""Agents and graph nodes with a sandbox for each thread."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Optional, Self

from langchain_core.runnables.config import RunnableConfig, ensure_config

from podbay.compat.langchain_kubernetes import _settings
from podbay.compat.langchain_kubernetes._provider_base import SandboxNotFoundError, translated
from podbay.compat.langchain_kubernetes.backends.raw import RawK8sBackend, RawSandbox, backend_type
from podbay.compat.langchain_kubernetes.provider import KubernetesProvider
from podbay.compat.langchain_kubernetes.sandbox import KubernetesSandbox
from podbay.deepagents import PodbaySandbox
from podbay.langgraph import SANDBOX_KEY, SandboxManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from podbay.compat.langchain_kubernetes._types import CleanupResult
    from podbay.compat.langchain_kubernetes.config import KubernetesProviderConfig

DEFAULT_SANDBOX_STATE_KEY = SANDBOX_KEY

# The original's name, for which programs may have set a level.
logger = logging.getLogger("langchain_kubernetes.manager")


class LoggedManager(SandboxManager):
    """Gives every thread a sandbox whose commands are logged."""

    _backend_type = RawSandbox


class KubernetesSandboxManager:
    """Gives every thread of a LangGraph application its own sandbox.

    The sandbox's id is derived from the `thread_id`, so every process finds the same sandbox and a restart loses
    nothing. The graph's state has the id too. Managers with different default labels have different sandboxes: give
    applications that share a namespace different labels if their thread ids may collide. Creating a manager does no
    I/O.
    """

    def __init__(
        self,
        provider_config: KubernetesProviderConfig,
        ttl_seconds: int | None = None,
        ttl_idle_seconds: int | None = None,
        default_labels: dict[str, str] | None = None,
    ) -> None:
        self._config = provider_config
        self._provider = KubernetesProvider(provider_config)
        self._ttl_seconds = ttl_seconds if ttl_seconds is not None else provider_config.ttl_seconds
        self._ttl_idle_seconds = ttl_idle_seconds if ttl_idle_seconds is not None else provider_config.ttl_idle_seconds
        labels = _settings.labels(provider_config, default_labels)
        manager = SandboxManager if backend_type(provider_config) is PodbaySandbox else LoggedManager
        self._threads = manager(
            provider=self._provider.core,
            tenant=json.dumps(labels, sort_keys=True),
            labels=labels | _settings.THREAD_SCOPED,
            ttl=self._ttl_seconds,
            idle_ttl=self._ttl_idle_seconds,
            timeout=provider_config.default_exec_timeout,
            thread_label=_settings.THREAD_ID,
        )

    def __repr__(self) -> str:
        return f"KubernetesSandboxManager({self._provider!r})"

    @property
    def backend(self) -> PodbaySandbox:
        """The backend for all threads; pass it to `create_deep_agent` in your own graphs."""
        return self._threads.backend

    def _make_backend_factory(self) -> Callable[[Any], Any]:
        # Programs with their own graphs called this because there was no public name. Deep Agents no longer takes
        # factories, so this returns the backend, which is callable too.
        return self.backend

    def create_agent(
        self,
        model: Any,
        *,
        checkpointer: Any = None,
        state_sandbox_key: str = DEFAULT_SANDBOX_STATE_KEY,
        **create_deep_agent_kwargs: Any,
    ) -> Any:
        """Returns a deep agent with a sandbox per thread, created on first use, and its id in the state."""
        return self._threads.create_agent(
            model, checkpointer=checkpointer, state_sandbox_key=state_sandbox_key, **create_deep_agent_kwargs
        )

    def create_setup_node(self, *, state_sandbox_key: str = DEFAULT_SANDBOX_STATE_KEY) -> Callable[..., Any]:
        """Returns an async node that finds or creates the thread's sandbox and writes its id to the state."""

        async def setup_node(state: dict[str, Any], config: Optional[RunnableConfig] = None) -> dict[str, Any]:  # noqa: UP045 - LangGraph looks for exactly this annotation
            node = self._threads.create_setup_node(state_sandbox_key=state_sandbox_key)
            with translated():
                return await node.ainvoke(state, config or ensure_config())

        return setup_node

    def create_agent_node(
        self,
        model: Any,
        *,
        state_sandbox_key: str = DEFAULT_SANDBOX_STATE_KEY,
        **create_deep_agent_kwargs: Any,
    ) -> Callable[..., Any]:
        """Returns an async node that runs a deep agent in the sandbox named by the state, or else in the thread's.

        If the state names no sandbox that is alive and there is no thread, it creates a new sandbox and writes its id
        to the state.
        """

        async def agent_node(state: dict[str, Any], config: Optional[RunnableConfig] = None) -> dict[str, Any]:  # noqa: UP045 - LangGraph looks for exactly this annotation
            from deepagents import create_deep_agent

            config = config or ensure_config()
            known = state.get(state_sandbox_key)
            sandbox = await self._sandbox_of(known, (config.get("configurable") or {}).get("thread_id"))
            agent = create_deep_agent(model, backend=sandbox, **create_deep_agent_kwargs)
            result = await agent.ainvoke({"messages": state.get("messages", [])}, config)
            changed = {} if sandbox.id == known else {state_sandbox_key: sandbox.id}
            return {"messages": result.get("messages", []), **changed}

        return agent_node

    async def get_or_reconnect(self, sandbox_id: str | None = None) -> KubernetesSandbox:
        """Returns the sandbox with this id, or a new one if it doesn't exist; its `id` tells which."""
        labels = {key: value for key, value in self._threads.labels.items() if key not in _settings.THREAD_SCOPED}
        return await self._provider.aget_or_create(
            sandbox_id=sandbox_id,
            labels=labels,
            ttl_seconds=self._ttl_seconds,
            ttl_idle_seconds=self._ttl_idle_seconds,
        )

    def cleanup(self, max_idle_seconds: int | None = None) -> CleanupResult:
        """Deletes expired sandboxes, and those that have been idle for `max_idle_seconds`."""
        return self._provider.cleanup(max_idle_seconds)

    async def acleanup(self, max_idle_seconds: int | None = None) -> CleanupResult:
        """The async version of `cleanup`."""
        return await self._provider.acleanup(max_idle_seconds)

    def shutdown(self) -> None:
        """Deletes every sandbox that this manager created."""
        with translated():
            deleted = self._threads.shutdown()
        logger.info("Shutdown: deleted sandboxes %s", deleted)

    async def ashutdown(self) -> None:
        """The async version of `shutdown`."""
        with translated():
            deleted = await self._threads.ashutdown()
        logger.info("Shutdown: deleted sandboxes %s", deleted)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.ashutdown()

    async def _sandbox_of(self, known: str | None, thread: str | None) -> KubernetesSandbox:
        if known is None and thread is None:
            return await self.get_or_reconnect()
        if known is not None:
            try:
                return await self._provider.areconnect(known)
            except SandboxNotFoundError:
                if thread is None:
                    return await self.get_or_reconnect()
        with translated():
            sandbox = await self._threads.aacquire(str(thread))
        return KubernetesSandbox(backend=RawK8sBackend(sandbox=sandbox, config=self._config))
