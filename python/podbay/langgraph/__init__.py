"""A sandbox for each thread of a LangGraph application.

    from langgraph.checkpoint.memory import MemorySaver
    from podbay.langgraph import SandboxManager

    manager = SandboxManager(mode="raw", image="python:3.12-slim", idle_ttl="30m")
    agent = manager.create_agent(model, checkpointer=MemorySaver())
    agent.invoke({"messages": [("user", "…")]}, config={"configurable": {"thread_id": "conversation-1"}})

The id of a thread's sandbox is derived from the thread (and the tenant), so every process that serves the thread finds
the same one and nothing has to be stored. The graph's state has the id as `sandbox_id`.
"""

import podbay.deepagents  # noqa: F401 - first, because its error says what to install if something is missing
from podbay.deepagents.thread import MissingThread, required_thread_id, thread_id
from podbay.langgraph.manager import SandboxManager
from podbay.langgraph.state import SANDBOX_KEY, SandboxIdMiddleware

__all__ = [
    "SANDBOX_KEY",
    "MissingThread",
    "SandboxIdMiddleware",
    "SandboxManager",
    "required_thread_id",
    "thread_id",
]
