"""A backend's life: what it is made with, when its sandbox begins and ends, and whom a call is for."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import podbay
from podbay.deepagents import commands
from podbay.deepagents.conversations import Conversations, One, this_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from types import TracebackType

    from podbay.deepagents.conversations import Source


class Lifetime:
    """What `PodbaySandbox` is before it has operations."""

    def __init__(
        self,
        mode: str | None = None,
        *,
        sandbox: podbay.Sandbox | None = None,
        manager: podbay.Manager | None = None,
        per_thread: bool = False,
        tenant: str = "",
        id: str | None = None,  # noqa: A002 - its name everywhere
        thread: str | None = None,
        timeout: float | timedelta = 300,
        output_limit: int = commands.OUTPUT_LIMIT,
        labels: Mapping[str, str] | None = None,
        ttl: float | str | timedelta | None = None,
        idle_ttl: float | str | timedelta | None = None,
        allow_prefixes: Sequence[str] | None = None,
        deny_prefixes: Sequence[str] | None = None,
        deny_commands: Sequence[str] | None = None,
        virtual_mode: bool | None = None,
        root_dir: str | None = None,
        audit_log: str | PathLike[str] | Callable[[str, str, dict[str, Any]], object] | None = None,
        strict_audit: bool | None = None,
        **settings: Any,
    ) -> None:
        self._timeout = _in_seconds(timeout)
        self._output_limit = output_limit
        self._mine = sandbox is None
        given: dict[str, Any] = {
            "mode": mode,
            "labels": labels,
            "ttl": ttl,
            "idle_ttl": idle_ttl,
            "allow_prefixes": allow_prefixes,
            "deny_prefixes": deny_prefixes,
            "deny_commands": deny_commands,
            "virtual_mode": virtual_mode,
            "root_dir": root_dir,
            "audit_log": audit_log,
            "strict_audit": strict_audit,
            **settings,
        }
        given = {name: value for name, value in given.items() if value is not None}
        if (sandbox is not None or manager is not None) and given:
            names = ", ".join(sorted(given))
            raise podbay.ConfigError(
                f"{names}: settings belong to what makes the sandbox, and that was passed in ready"
            )
        self._source: Source
        if per_thread or manager is not None:
            if sandbox is not None or id is not None or thread is not None:
                raise podbay.ConfigError("per_thread takes the sandbox of the running conversation: name none")
            self._source = Conversations(manager or podbay.Manager(**given), tenant)
        else:
            self._source = One(sandbox or podbay.Sandbox(id=id, thread=thread, tenant=tenant, **given))

    @property
    def id(self) -> str:
        """The sandbox's id, which another process can attach to."""
        return self._source.id

    def __call__(self, _runtime: object = None) -> Self:
        """Itself, for code that makes its backend anew for each run."""
        return self

    def __repr__(self) -> str:
        return f"PodbaySandbox({self._source.id!r})"

    def __enter__(self) -> Self:
        if isinstance(self._source, One):
            self._source.only.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        if isinstance(self._source, One):
            await self._source.only.aopen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def close(self) -> None:
        """Ends the sandbox if this object made it. With `per_thread` only connections end: conversations go on."""
        if isinstance(self._source, Conversations):
            self._source.clear()
        elif self._mine:
            self._source.sandbox().close()

    async def aclose(self) -> None:
        """Ends the sandbox if this object made it. With `per_thread` only connections end: conversations go on."""
        if isinstance(self._source, Conversations):
            self._source.clear()
        elif self._mine:
            await (await self._source.asandbox()).aclose()

    def refresh(self) -> None:
        """At the beginning of a turn: when the conversation's sandbox ended meanwhile, the turn shall get a new one.

        In the midst of a turn that is no matter for silence: the agent is told that its files are gone.
        """
        if isinstance(self._source, Conversations):
            self._source.refresh()

    async def arefresh(self) -> None:
        """As `refresh`."""
        if isinstance(self._source, Conversations):
            await self._source.arefresh()

    def release(self, thread: str | None = None) -> bool:
        """Deletes the sandbox, with `per_thread` that of a conversation; whether there was one."""
        if isinstance(self._source, One):
            return self._source.only.destroy()
        thread, manager, tenant = self._named(thread)
        return manager.release(thread, tenant)

    async def arelease(self, thread: str | None = None) -> bool:
        """Deletes the sandbox, with `per_thread` that of a conversation; whether there was one."""
        if isinstance(self._source, One):
            return await self._source.only.adestroy()
        thread, manager, tenant = self._named(thread)
        return await manager.arelease(thread, tenant)

    def _named(self, thread: str | None) -> tuple[str, podbay.Manager, str]:
        assert isinstance(self._source, Conversations)
        thread = thread if thread is not None else this_thread()
        self._source.forget(thread)
        return thread, self._source.manager, self._source.tenant

    def _seconds(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout

    def _seen(self, failure: Exception) -> Exception:
        self._source.lost(failure)
        return failure


def _in_seconds(time: float | timedelta) -> float:
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    if seconds < 0:
        raise podbay.ConfigError(f"timeout={seconds:g} makes no sense: pass seconds, or 0 for no limit")
    return seconds
