"""Two graphs with a sandbox per thread: an agent, and a custom graph around an agent.

    pip install 'langgraph-cli[inmem]'
    MODEL=anthropic:claude-sonnet-4-5 langgraph dev

`langgraph.json` in this directory lists both. `langgraph dev` and LangGraph Platform provide their own checkpointer.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from deepagents import create_deep_agent
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from podbay.langgraph import SandboxManager

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

manager = SandboxManager(idle_ttl="30m", labels={"app": "my-agent"})


class State(TypedDict):
    """The state of the custom graph."""

    messages: Annotated[list[Any], add_messages]
    sandbox_id: str | None
    packages: str


def agent(model: BaseChatModel | str | None = None, **options: Any) -> Any:
    """Returns the agent itself: tokens and tool calls stream, and the first tool call creates the sandbox."""
    return manager.create_agent(model or os.environ["MODEL"], system_prompt="You are a data analyst.", **options)


def pipeline(model: BaseChatModel | str | None = None, **options: Any) -> Any:
    """Returns a graph that creates the sandbox, inspects it without a model, and then runs an agent in it."""

    async def inspect(_: State) -> dict[str, str]:
        result = await manager.backend.aexecute("python3 --version")
        return {"packages": result.output.strip()}

    graph = StateGraph(State)
    graph.add_node("setup", manager.create_setup_node())
    graph.add_node("inspect", inspect)
    graph.add_node("agent", create_deep_agent(model or os.environ["MODEL"], backend=manager.backend))
    graph.add_edge(START, "setup")
    graph.add_edge("setup", "inspect")
    graph.add_edge("inspect", "agent")
    graph.add_edge("agent", END)
    return graph.compile(**options)


def make_agent() -> Any:
    """The entry point for `langgraph.json`, which takes functions without arguments."""
    return agent()


def make_pipeline() -> Any:
    """The entry point for `langgraph.json`."""
    return pipeline()
