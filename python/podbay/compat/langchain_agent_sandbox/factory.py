"""A backend for `create_deep_agent`, with a sandbox for each thread."""

from __future__ import annotations

import json
import weakref
from typing import TYPE_CHECKING, Any

import podbay
from podbay.compat.langchain_agent_sandbox.backend import AgentSandboxBackend, _close, created
from podbay.deepagents.conversations import SandboxPerThread, SingleSandbox
from podbay.deepagents.thread import thread_id

if TYPE_CHECKING:
    from collections.abc import Callable


class SandboxBackendFactory(AgentSandboxBackend):
    """A backend that can also be called, as Deep Agents did before 0.7.

    A run with a `thread_id` works in the thread's sandbox, all others in one that belongs to this object.
    """

    @classmethod
    def create(cls, settings: dict[str, Any], root_dir: str, timeout: float) -> SandboxBackendFactory:
        """Creates the backend. Nothing is created in the cluster yet."""
        backend = cls.__new__(cls)
        backend._client = None
        backend._manage_client = False
        single = podbay.Sandbox(**settings)
        backend._begin(PerRun(settings, single), root_dir, timeout)
        weakref.finalize(backend, _close, single)
        return backend


class PerRun:
    """The sandbox of the current thread, or one for all runs that have none."""

    def __init__(self, settings: dict[str, Any], single: podbay.Sandbox) -> None:
        provided = {name: value for name, value in settings.items() if name not in ("labels", "ttl")}
        manager = podbay.Manager(podbay.Provider(**provided), labels=settings.get("labels"), ttl=settings.get("ttl"))
        # Factories with other settings have other sandboxes for the same thread.
        self._threads = SandboxPerThread(manager, json.dumps(settings, sort_keys=True, default=str))
        self._single = SingleSandbox(single, replaces=True)

    @property
    def id(self) -> str:
        """The id of the sandbox that a call would use."""
        return self._now().id

    def sandbox(self) -> podbay.Sandbox:
        """Returns the sandbox for the current call."""
        return self._now().sandbox()

    async def asandbox(self) -> podbay.Sandbox:
        """Returns the sandbox for the current call."""
        return await self._now().asandbox()

    def failed(self, failure: Exception) -> None:
        """Called with the failure of an operation."""
        self._now().failed(failure)

    def _now(self) -> SandboxPerThread | SingleSandbox:
        return self._single if thread_id() is None else self._threads


def create_sandbox_backend_factory(
    template_name: str,
    namespace: str = "default",
    **kwargs: Any,
) -> Callable[[Any], AgentSandboxBackend]:
    """Returns a backend for `create_deep_agent(backend=…)`, which can also be called with a runtime.

    Runs with a `thread_id` have a sandbox for each thread, which other processes find too; it ends after a day without
    use, or by `shutdown_after_seconds`. Runs without one share a sandbox that ends with the program. The other
    arguments are those of `AgentSandboxBackend.from_template`.
    """
    gateway = kwargs.pop("gateway_name", None), kwargs.pop("gateway_namespace", "default")
    api_url, root_dir = kwargs.pop("api_url", None), kwargs.pop("root_dir", "/app")
    settings, root, timeout = created(template_name, namespace, gateway, api_url, root_dir, **kwargs)
    return SandboxBackendFactory.create(settings, root, timeout)
