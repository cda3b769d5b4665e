"""Which sandbox a call is for: always the same one, or that of the conversation which is running."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from langgraph.config import get_config

import podbay
from podbay.errors import ClosedError, PodbayError, PodGone, SandboxNotFound, SandboxRestarted, Unreachable

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

KEPT: Final = 1000
"""How many conversations keep their connection. One that lost it opens it again with its next call."""


class NoConversation(PodbayError, LookupError):
    """A call came from no conversation, so there is no telling whose sandbox it is for."""


class Source(Protocol):
    """Where an operation gets its sandbox."""

    @property
    def id(self) -> str:
        """The id of the sandbox that a call would get."""

    def sandbox(self) -> podbay.Sandbox:
        """The sandbox of this call."""

    async def asandbox(self) -> podbay.Sandbox:
        """The sandbox of this call."""

    def lost(self, failure: Exception) -> None:
        """Takes note of a failure."""


class One:
    """One sandbox for all calls. It is made with the first one."""

    def __init__(self, sandbox: podbay.Sandbox) -> None:
        self.only = sandbox

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self.only.id

    def sandbox(self) -> podbay.Sandbox:
        """The sandbox."""
        return self.only

    async def asandbox(self) -> podbay.Sandbox:
        """The sandbox."""
        return self.only

    def lost(self, failure: Exception) -> None:
        """Nothing: a sandbox that someone chose isn't replaced by another."""


class Conversations:
    """A sandbox for each conversation, found by the `thread_id` of the run that the call is part of."""

    def __init__(self, manager: podbay.Manager, tenant: str) -> None:
        self.manager = manager
        self.tenant = tenant
        # Only a short cut to what the provider knows: the sandbox's id follows from tenant and thread.
        self._open: OrderedDict[str, podbay.Sandbox] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def id(self) -> str:
        """The id of the running conversation's sandbox; without one, a name for all of them."""
        thread = thread_id()
        return "podbay-per-thread" if thread is None else podbay.sandbox_id(self.tenant, thread)

    def sandbox(self) -> podbay.Sandbox:
        """The running conversation's sandbox, made if there is none."""
        thread = this_thread()
        return self._known(thread) or self._keep(thread, self.manager.acquire(thread, self.tenant))

    async def asandbox(self) -> podbay.Sandbox:
        """The running conversation's sandbox, made if there is none."""
        thread = this_thread()
        return self._known(thread) or self._keep(thread, await self.manager.aacquire(thread, self.tenant))

    def lost(self, failure: Exception) -> None:
        """Forgets the running conversation's sandbox when it seems to be over: the next call looks for it anew."""
        if isinstance(failure, ClosedError | PodGone | SandboxNotFound | SandboxRestarted | Unreachable):
            self.forget(thread_id())

    def refresh(self) -> None:
        """Forgets the running conversation's sandbox if it ended since its last call."""
        if (thread := thread_id()) is not None and (known := self._known(thread)) is not None:
            try:
                known.hello()
            except PodbayError as failure:
                self.lost(failure)

    async def arefresh(self) -> None:
        """As `refresh`."""
        if (thread := thread_id()) is not None and (known := self._known(thread)) is not None:
            try:
                await known.ahello()
            except PodbayError as failure:
                self.lost(failure)

    def forget(self, thread: str | None) -> None:
        """Drops what is known of a conversation's sandbox. The sandbox itself stays."""
        with self._lock:
            if thread is not None:
                self._open.pop(thread, None)

    def clear(self) -> None:
        """Drops what is known of all conversations' sandboxes. They themselves stay."""
        with self._lock:
            self._open.clear()

    def _known(self, thread: str) -> podbay.Sandbox | None:
        with self._lock:
            sandbox = self._open.get(thread)
            if sandbox is None or sandbox.closed:
                return None
            self._open.move_to_end(thread)
            return sandbox

    def _keep(self, thread: str, sandbox: podbay.Sandbox) -> podbay.Sandbox:
        with self._lock:
            # Of two calls that came at once the first one's counts: both lead to the same sandbox.
            known = self._open.get(thread)
            if known is not None and not known.closed:
                return known
            self._open[thread] = sandbox
            if len(self._open) > KEPT:
                # Only forgotten: closing would delete it, and a call of that conversation may be under way.
                self._open.popitem(last=False)
            return sandbox


def thread_id() -> str | None:
    """The `thread_id` of the LangGraph run that this code is part of; context variables carry it into threads."""
    try:
        config: RunnableConfig = get_config()
    except RuntimeError:
        return None
    thread = config.get("configurable", {}).get("thread_id")
    return None if thread is None or thread == "" else str(thread)


def this_thread() -> str:
    """The same, where there has to be one."""
    thread = thread_id()
    if thread is None:
        message = (
            "there is no conversation to take a sandbox for: invoke the agent with "
            'config={"configurable": {"thread_id": "…"}}, or make the backend without per_thread'
        )
        raise NoConversation(message)
    return thread
