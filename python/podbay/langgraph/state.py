"""The sandbox's id in the state of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

from langchain.agents.middleware.types import AgentMiddleware, OmitFromInput

from podbay.langgraph.thread import thread_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from langgraph.runtime import Runtime

    from podbay.deepagents import PodbaySandbox

__all__ = ["SANDBOX_KEY", "SandboxIdMiddleware"]

SANDBOX_KEY = "sandbox_id"
"""The field of a graph's state with the id of the thread's sandbox."""


class SandboxIdMiddleware(AgentMiddleware[Any, Any, Any]):
    """Writes the id of the thread's sandbox into the agent's state, and has a new one made if that one ended meanwhile.

    It makes no sandbox itself: the id follows from the thread. For the same reason it can't be given as input, and what
    a copied thread brings along is overwritten: whoever may write to a thread must not reach another one's sandbox.
    """

    def __init__(self, id_of: Callable[[str], str], backend: PodbaySandbox, key: str = SANDBOX_KEY) -> None:
        super().__init__()
        self._id_of = id_of
        self._backend = backend
        self._key = key
        fields = {key: NotRequired[Annotated[str | None, OmitFromInput]]}
        self.state_schema = TypedDict("SandboxState", fields)  # type: ignore[misc]

    def before_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """Looks at the sandbox, and tells the id when the state doesn't know it yet."""
        changed = self._changed(state)
        self._backend.refresh()
        return changed

    async def abefore_agent(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """As `before_agent`."""
        changed = self._changed(state)
        await self._backend.arefresh()
        return changed

    def _changed(self, state: Any) -> dict[str, Any] | None:
        now = self._id_of(thread_id(what="An agent with a sandbox per thread"))
        return None if state.get(self._key) == now else {self._key: now}
