"""The sandbox's id in the state of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from langchain.agents.middleware.types import AgentMiddleware, OmitFromInput

from podbay.deepagents.thread import required_thread_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from langgraph.runtime import Runtime

    from podbay.deepagents import PodbaySandbox

__all__ = ["SANDBOX_KEY", "SandboxIdMiddleware"]

SANDBOX_KEY = "sandbox_id"
"""The field of a graph's state that has the id of the thread's sandbox."""


class SandboxIdMiddleware(AgentMiddleware[Any, Any, Any]):
    """Writes the id of the thread's sandbox to the agent's state, and has a new one created if the old one has ended.

    It doesn't create a sandbox itself: the id follows from the thread. That's also why the id can't be set by input and
    is overwritten in a copied thread: whoever can write to a thread must not reach the sandbox of another.
    """

    def __init__(self, id_of: Callable[[str], str], backend: PodbaySandbox, key: str = SANDBOX_KEY) -> None:
        super().__init__()
        self._id_of = id_of
        self._backend = backend
        self._key = key
        fields = {key: NotRequired[Annotated[str | None, OmitFromInput]]}
        self.state_schema = TypedDict("SandboxState", fields)  # type: ignore[misc]

    def before_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """Checks the sandbox, and returns its id if the state doesn't have it yet."""
        changed = self._changed(state)
        self._backend.refresh()
        return changed

    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """The async version of `before_agent`."""
        changed = self._changed(state)
        await self._backend.arefresh()
        return changed

    def _changed(self, state: Any) -> dict[str, Any] | None:
        now = self._id_of(required_thread_id(what="An agent with a sandbox per thread"))
        return None if state.get(self._key) == now else {self._key: now}
