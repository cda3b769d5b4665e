"""Two graphs with a sandbox per thread: the agent itself, and a graph of one's own around one.

    pip install 'langgraph-cli[inmem]'
    MODEL=anthropic:claude-sonnet-4-5 langgraph dev

`langgraph.json` beside this file names both. `langgraph dev` and LangGraph Platform bring their own checkpointer.
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
    """What the graph of one's own remembers of a thread."""

    messages: Annotated[list[Any], add_messages]
    sandbox_id: str | None
    packages: str


def agent(model: BaseChatModel | str | None = None, **options: Any) -> Any:
    """The agent as the top graph: tokens and tool calls stream, and the sandbox is made by the first tool call."""
    return manager.create_agent(model or os.environ["MODEL"], system_prompt="You are a data analyst.", **options)


def pipeline(model: BaseChatModel | str | None = None, **options: Any) -> Any:
    """A graph that has the sandbox made, looks at it without a model, and then lets an agent work in it."""

    async def look(_: State) -> dict[str, str]:
        answer = await manager.backend.aexecute("python3 --version")
        return {"packages": answer.output.strip()}

    graph = StateGraph(State)
    graph.add_node("setup", manager.create_setup_node())
    graph.add_node("look", look)
    graph.add_node("agent", create_deep_agent(model or os.environ["MODEL"], backend=manager.backend))
    graph.add_edge(START, "setup")
    graph.add_edge("setup", "look")
    graph.add_edge("look", "agent")
    graph.add_edge("agent", END)
    return graph.compile(**options)


def make_agent() -> Any:
    """For `langgraph.json`, which takes functions without arguments."""
    return agent()


def make_pipeline() -> Any:
    """For `langgraph.json`."""
    return pipeline()
