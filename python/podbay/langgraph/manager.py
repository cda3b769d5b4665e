"""Agents and graph nodes with a sandbox for each thread."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, Self

from langchain_core.runnables import RunnableConfig, RunnableLambda

import podbay
from podbay.deepagents import PodbaySandbox
from podbay.deepagents.thread import required_thread_id
from podbay.langgraph.state import SANDBOX_KEY, SandboxIdMiddleware

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from types import TracebackType

    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import Runnable

__all__ = ["SandboxManager"]

# The label that names the manager that created a sandbox, which `shutdown` deletes.
_CREATED_BY = "manager"


class SandboxManager:
    """Gives every thread of a LangGraph application its own sandbox.

    The keyword arguments are those of `podbay.Sandbox`: settings, rules on paths and commands, an audit log. `tenant`
    keeps threads of the same name apart. `timeout` is how many seconds a command may take unless the agent says.
    `thread_label` is a label of new sandboxes that has the thread's name, for lists.

    A manager keeps no state of its own, so any number of processes can serve any thread. Creating one does no I/O.
    """

    _backend_type: type[PodbaySandbox] = PodbaySandbox

    def __init__(
        self,
        mode: str | None = None,
        *,
        provider: podbay.Provider | None = None,
        tenant: str = "",
        labels: Mapping[str, str] | None = None,
        ttl: float | str | timedelta | None = None,
        idle_ttl: float | str | timedelta | None = None,
        timeout: int | None = None,
        thread_label: str | None = None,
        **settings: Any,
    ) -> None:
        if provider is not None and (mode is not None or settings):
            given = ", ".join(sorted(settings) or ["mode"])
            raise podbay.ConfigError(f"the provider already has its settings: pass either the provider or {given}")
        self.tenant = tenant
        self.provider = provider if provider is not None else podbay.Provider(mode, **settings)
        self._created_by = secrets.token_hex(8)
        self.labels = {**(labels or {}), _CREATED_BY: self._created_by}
        """The labels of every sandbox that it creates; one of them names the manager."""
        self._ttl = ttl
        self._idle_ttl = idle_ttl
        self._timeout: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        self._manager = podbay.Manager(
            self.provider, labels=self.labels, ttl=ttl, idle_ttl=idle_ttl, thread_label=thread_label
        )
        self.backend = self._backend_type(per_thread=True, tenant=tenant, manager=self._manager, **self._timeout)
        """The backend for all threads; pass it to `create_deep_agent` in your own graphs."""

    def __repr__(self) -> str:
        return f"SandboxManager(mode={self.provider.mode!r}, tenant={self.tenant!r})"

    def sandbox_id(self, thread: str) -> str:
        """Returns the id of a thread's sandbox, whether or not it exists."""
        return podbay.sandbox_id(self.tenant, thread)

    def acquire(self, thread: str) -> podbay.Sandbox:
        """Returns a thread's sandbox, and creates it if it doesn't exist."""
        return self._manager.acquire(thread, self.tenant)

    async def aacquire(self, thread: str) -> podbay.Sandbox:
        """The async version of `acquire`."""
        return await self._manager.aacquire(thread, self.tenant)

    def create_agent(
        self,
        model: BaseChatModel | str,
        *,
        checkpointer: Any = None,
        state_sandbox_key: str = SANDBOX_KEY,
        **create_deep_agent_kwargs: Any,
    ) -> Any:
        """Returns a deep agent with a sandbox per thread, which is created when a tool first needs it.

        It is the agent itself, not wrapped in another graph, so tokens and tool calls stream. Omit the checkpointer
        under `langgraph dev` and on LangGraph Platform, which provide their own. Other arguments are passed to
        `create_deep_agent`.
        """
        from deepagents import create_deep_agent

        _refuse_backend(create_deep_agent_kwargs)
        middleware = [*create_deep_agent_kwargs.pop("middleware", ()), self._middleware(state_sandbox_key)]
        return create_deep_agent(
            model, backend=self.backend, checkpointer=checkpointer, middleware=middleware, **create_deep_agent_kwargs
        )

    def create_setup_node(self, *, state_sandbox_key: str = SANDBOX_KEY) -> Runnable[Any, dict[str, Any]]:
        """Returns a node that finds or creates the thread's sandbox and writes its id to the state.

        Put it before nodes that use `backend` if the sandbox should exist before the model's first answer.
        """

        def setup_node(state: Any, config: RunnableConfig) -> dict[str, Any]:
            sandbox = self.acquire(required_thread_id(config, what="A sandbox's setup node"))
            return _changed(state, state_sandbox_key, sandbox.id)

        async def asetup_node(state: Any, config: RunnableConfig) -> dict[str, Any]:
            sandbox = await self.aacquire(required_thread_id(config, what="A sandbox's setup node"))
            return _changed(state, state_sandbox_key, sandbox.id)

        return RunnableLambda(setup_node, asetup_node, name="setup_node")

    def create_agent_node(
        self,
        model: BaseChatModel | str,
        *,
        state_sandbox_key: str = SANDBOX_KEY,
        **create_deep_agent_kwargs: Any,
    ) -> Runnable[Any, dict[str, Any]]:
        """Returns a node that runs a deep agent on the state's `messages`, in the thread's sandbox.

        The graph's state needs `messages` with the `add_messages` reducer and a field for the sandbox's id.
        """
        agent = self.create_agent(model, state_sandbox_key=state_sandbox_key, **create_deep_agent_kwargs)

        def agent_node(state: Any, config: RunnableConfig) -> dict[str, Any]:
            result = agent.invoke({"messages": _messages(state)}, config)
            return {"messages": result["messages"], **_changed(state, state_sandbox_key, result[state_sandbox_key])}

        async def aagent_node(state: Any, config: RunnableConfig) -> dict[str, Any]:
            result = await agent.ainvoke({"messages": _messages(state)}, config)
            return {"messages": result["messages"], **_changed(state, state_sandbox_key, result[state_sandbox_key])}

        return RunnableLambda(agent_node, aagent_node, name="agent_node")

    def get_or_reconnect(self, sandbox_id: str | None = None) -> PodbaySandbox:
        """Returns the sandbox with this id as a backend, or a new one if it doesn't exist; its `id` tells which."""
        if sandbox_id is not None:
            try:
                return self._backend_of(self.provider.reconnect(sandbox_id))
            except (podbay.SandboxNotFound, podbay.PodGone):
                pass
        return self._backend_of(self.provider.get_or_create(labels=self.labels, ttl=self._ttl, idle_ttl=self._idle_ttl))

    async def aget_or_reconnect(self, sandbox_id: str | None = None) -> PodbaySandbox:
        """The async version of `get_or_reconnect`."""
        if sandbox_id is not None:
            try:
                return self._backend_of(await self.provider.areconnect(sandbox_id))
            except (podbay.SandboxNotFound, podbay.PodGone):
                pass
        return self._backend_of(
            await self.provider.aget_or_create(labels=self.labels, ttl=self._ttl, idle_ttl=self._idle_ttl)
        )

    def cleanup(self, max_idle: float | str | timedelta | None = None) -> podbay.Cleaned:
        """Deletes expired sandboxes and, with `max_idle`, those that have been idle for longer."""
        return self.provider.cleanup(max_idle)

    async def acleanup(self, max_idle: float | str | timedelta | None = None) -> podbay.Cleaned:
        """The async version of `cleanup`."""
        return await self.provider.acleanup(max_idle)

    def shutdown(self) -> list[str]:
        """Deletes every sandbox that this manager created, even if another process is using it. Returns their ids."""
        ids: list[str] = []
        cursor = None
        while True:
            page = self.provider.list(labels={_CREATED_BY: self._created_by}, cursor=cursor)
            ids += [listed.id for listed in page]
            if (cursor := page.cursor) is None:
                break
        failed: list[tuple[str, Exception]] = []
        for each in ids:
            try:
                self.provider.delete(each)
            except podbay.PodbayError as error:
                failed.append((each, error))
        return _all_or_error(ids, failed)

    async def ashutdown(self) -> list[str]:
        """The async version of `shutdown`; deletes the sandboxes concurrently."""
        ids: list[str] = []
        cursor = None
        while True:
            page = await self.provider.alist(labels={_CREATED_BY: self._created_by}, cursor=cursor)
            ids += [listed.id for listed in page]
            if (cursor := page.cursor) is None:
                break
        ends = await asyncio.gather(*(self.provider.adelete(each) for each in ids), return_exceptions=True)
        failed: list[tuple[str, Exception]] = []
        for each, end in zip(ids, ends, strict=True):
            if isinstance(end, podbay.PodbayError):
                failed.append((each, end))
            elif isinstance(end, BaseException):
                raise end
        return _all_or_error(ids, failed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.ashutdown()

    def _middleware(self, key: str) -> SandboxIdMiddleware:
        return SandboxIdMiddleware(self.sandbox_id, self.backend, key)

    def _backend_of(self, sandbox: podbay.Sandbox) -> PodbaySandbox:
        return self._backend_type(sandbox=sandbox, **self._timeout)


def _messages(state: Any) -> Any:
    return state["messages"] if isinstance(state, dict) else state.messages


def _changed(state: Any, key: str, now: str) -> dict[str, Any]:
    known = state.get(key) if isinstance(state, dict) else getattr(state, key, None)
    return {} if known == now else {key: now}


def _refuse_backend(settings: dict[str, Any]) -> None:
    if "backend" in settings:
        raise podbay.ConfigError("the backend of these agents is the thread's sandbox: omit backend")


def _all_or_error(ids: list[str], failed: list[tuple[str, Exception]]) -> list[str]:
    if failed:
        errors = "; ".join(f"{each}: {error}" for each, error in failed)
        raise podbay.ProviderError(f"{len(failed)} of {len(ids)} sandboxes couldn't be deleted, try again: {errors}")
    return ids
