"""Which sandbox a call goes to: always the same one, or that of the current thread."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Protocol

import podbay
from podbay.deepagents.thread import required_thread_id, thread_id
from podbay.errors import ClosedError, PodbayError, PodGone, SandboxNotFound, SandboxRestarted, Unreachable

KEPT: Final = 1000
"""How many threads keep their connection. Others reconnect with their next call."""


class Source(Protocol):
    """Provides the sandbox for an operation."""

    @property
    def id(self) -> str:
        """The id of the sandbox that a call would use."""

    def sandbox(self) -> podbay.Sandbox:
        """Returns the sandbox for the current call."""

    async def asandbox(self) -> podbay.Sandbox:
        """Returns the sandbox for the current call."""

    def failed(self, failure: Exception) -> None:
        """Called with the failure of an operation."""


class SingleSandbox:
    """One sandbox for all calls, created by the first.

    With `replaces`, the call after one that found the sandbox's pod gone gets a new, empty sandbox under the same id.
    """

    def __init__(self, sandbox: podbay.Sandbox, *, replaces: bool = False) -> None:
        self.only = sandbox
        self._replaces = replaces

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self.only.id

    def sandbox(self) -> podbay.Sandbox:
        """Returns the sandbox."""
        return self.only

    async def asandbox(self) -> podbay.Sandbox:
        """Returns the sandbox."""
        return self.only

    def failed(self, failure: Exception) -> None:
        """Lets the next call create the sandbox anew if its pod is gone. One that the user chose isn't replaced.

        The failure itself tells the agent that its files are gone.
        """
        if self._replaces and isinstance(failure, PodGone | SandboxNotFound):
            self.only.disconnect()


class SandboxPerThread:
    """A sandbox for each thread, found by the `thread_id` of the current run."""

    def __init__(self, manager: podbay.Manager, tenant: str) -> None:
        self.manager = manager
        self.tenant = tenant
        # A cache only: the sandbox's id follows from tenant and thread.
        self._open: OrderedDict[str, podbay.Sandbox] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def id(self) -> str:
        """The id of the current thread's sandbox; outside of a run, a name for all of them."""
        thread = thread_id()
        return "podbay-per-thread" if thread is None else podbay.sandbox_id(self.tenant, thread)

    def sandbox(self) -> podbay.Sandbox:
        """Returns the current thread's sandbox, and creates it if it doesn't exist."""
        thread = required_thread_id(what="A backend with per_thread")
        return self._known(thread) or self._keep(thread, self.manager.acquire(thread, self.tenant))

    async def asandbox(self) -> podbay.Sandbox:
        """Returns the current thread's sandbox, and creates it if it doesn't exist."""
        thread = required_thread_id(what="A backend with per_thread")
        return self._known(thread) or self._keep(thread, await self.manager.aacquire(thread, self.tenant))

    def failed(self, failure: Exception) -> None:
        """Forgets the current thread's sandbox if it seems to have ended, so that the next call looks it up again."""
        if isinstance(failure, ClosedError | PodGone | SandboxNotFound | SandboxRestarted | Unreachable):
            self.forget(thread_id())

    def refresh(self) -> None:
        """Forgets the current thread's sandbox if it ended since its last call."""
        if (thread := thread_id()) is not None and (known := self._known(thread)) is not None:
            try:
                known.hello()
            except PodbayError as failure:
                self.failed(failure)

    async def arefresh(self) -> None:
        """The async version of `refresh`."""
        if (thread := thread_id()) is not None and (known := self._known(thread)) is not None:
            try:
                await known.ahello()
            except PodbayError as failure:
                self.failed(failure)

    def forget(self, thread: str | None) -> None:
        """Drops a thread's sandbox from the cache. The sandbox itself stays."""
        with self._lock:
            if thread is not None:
                self._open.pop(thread, None)

    def clear(self) -> None:
        """Empties the cache. The sandboxes themselves stay."""
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
            # Of two concurrent calls the first one's object is kept; both lead to the same sandbox.
            known = self._open.get(thread)
            if known is not None and not known.closed:
                return known
            self._open[thread] = sandbox
            if len(self._open) > KEPT:
                # Only forgotten: closing would delete it, and a call of that thread may be in progress.
                self._open.popitem(last=False)
            return sandbox
