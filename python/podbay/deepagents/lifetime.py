"""A backend's constructor and lifecycle: when its sandbox is created and deleted, and which sandbox a call goes to."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import podbay
from podbay._native import _parse_time
from podbay.deepagents import commands
from podbay.deepagents.conversations import SandboxPerThread, SingleSandbox
from podbay.deepagents.thread import required_thread_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from types import TracebackType

    from podbay.deepagents.conversations import Source


class Lifetime:
    """The base of `PodbaySandbox`, without its operations."""

    def __init__(
        self,
        mode: str | None = None,
        *,
        sandbox: podbay.Sandbox | None = None,
        manager: podbay.Manager | None = None,
        per_thread: bool = False,
        tenant: str = "",
        id: str | None = None,  # noqa: A002 - the name that every class uses
        thread: str | None = None,
        timeout: float | str | timedelta = 300,
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
        skip_cleanup: bool = False,
        attach: bool = False,
        **settings: Any,
    ) -> None:
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
        ends: dict[str, Any] = {"skip_cleanup": skip_cleanup, "attach": attach}
        if (sandbox is not None or manager is not None) and (given or any(ends.values())):
            names = ", ".join(sorted([*given, *(name for name, value in ends.items() if value)]))
            raise podbay.ConfigError(
                f"{names}: pass settings to the sandbox or manager itself, because an existing one was given"
            )
        source: Source
        if per_thread or manager is not None:
            if sandbox is not None or id is not None or thread is not None:
                raise podbay.ConfigError(
                    "per_thread uses the sandbox of the current thread: pass neither sandbox, id nor thread"
                )
            if any(ends.values()):
                raise podbay.ConfigError(
                    "per_thread creates sandboxes that outlive the program: pass neither skip_cleanup nor attach"
                )
            source = SandboxPerThread(manager or podbay.Manager(**given), tenant)
        else:
            own = sandbox or podbay.Sandbox(id=id, thread=thread, tenant=tenant, **ends, **given)
            source = SingleSandbox(own, replaces=sandbox is None)
        self._use(source, timeout=timeout, output_limit=output_limit, owned=sandbox is None)

    def _use(
        self,
        source: Source,
        *,
        timeout: float | str | timedelta = 300,
        output_limit: int = commands.OUTPUT_LIMIT,
        owned: bool = False,
    ) -> None:
        """Sets what calls work with. Subclasses with another constructor call this instead of `__init__`."""
        self._timeout = _in_seconds(timeout)
        self._output_limit = output_limit
        self._owned = owned
        self._source = source

    @property
    def id(self) -> str:
        """The sandbox's id, with which another process can use the same sandbox."""
        return self._source.id

    def __call__(self, _runtime: object = None) -> Self:
        """Returns itself, for code that creates its backend in a factory for each run."""
        return self

    def __repr__(self) -> str:
        return f"PodbaySandbox({self._source.id!r})"

    def __enter__(self) -> Self:
        if isinstance(self._source, SingleSandbox):
            self._source.only.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        if isinstance(self._source, SingleSandbox):
            await self._source.only.aopen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def close(self) -> None:
        """Deletes the sandbox if this object created it. With `per_thread` it only disconnects: the sandboxes stay."""
        if isinstance(self._source, SandboxPerThread):
            self._source.clear()
        elif self._owned:
            self._source.sandbox().close()

    async def aclose(self) -> None:
        """Deletes the sandbox if this object created it. With `per_thread` it only disconnects: the sandboxes stay."""
        if isinstance(self._source, SandboxPerThread):
            self._source.clear()
        elif self._owned:
            await (await self._source.asandbox()).aclose()

    def refresh(self) -> None:
        """Lets the next call get a new sandbox if the thread's sandbox has ended. Call this at the beginning of a turn.

        In the middle of a turn a sandbox isn't replaced silently: the agent is told that its files are gone.
        """
        if isinstance(self._source, SandboxPerThread):
            self._source.refresh()

    async def arefresh(self) -> None:
        """The async version of `refresh`."""
        if isinstance(self._source, SandboxPerThread):
            await self._source.arefresh()

    def release(self, thread: str | None = None) -> bool:
        """Deletes the sandbox; with `per_thread`, that of a thread. Returns whether there was one."""
        if isinstance(self._source, SingleSandbox):
            return self._source.only.destroy()
        thread, manager, tenant = self._named(thread)
        return manager.release(thread, tenant)

    async def arelease(self, thread: str | None = None) -> bool:
        """Deletes the sandbox; with `per_thread`, that of a thread. Returns whether there was one."""
        if isinstance(self._source, SingleSandbox):
            return await self._source.only.adestroy()
        thread, manager, tenant = self._named(thread)
        return await manager.arelease(thread, tenant)

    def _named(self, thread: str | None) -> tuple[str, podbay.Manager, str]:
        assert isinstance(self._source, SandboxPerThread)
        thread = thread if thread is not None else required_thread_id(what="A backend with per_thread")
        self._source.forget(thread)
        return thread, self._source.manager, self._source.tenant

    def _seconds(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else timeout

    def _noted(self, failure: Exception) -> Exception:
        self._source.failed(failure)
        return failure


def _in_seconds(time: float | str | timedelta) -> float:
    if isinstance(time, str):
        time = _parse_time("timeout", time)
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    if seconds < 0:
        raise podbay.ConfigError(f"timeout={seconds:g} is negative: pass seconds, or 0 for no limit")
    return seconds
