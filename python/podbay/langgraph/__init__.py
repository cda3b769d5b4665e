"""A sandbox for each thread of a LangGraph application.

    from langgraph.checkpoint.memory import MemorySaver
    from podbay.langgraph import SandboxManager

    manager = SandboxManager(mode="raw", image="python:3.12-slim", idle_ttl="30m")
    agent = manager.create_agent(model, checkpointer=MemorySaver())
    agent.invoke({"messages": [("user", "…")]}, config={"configurable": {"thread_id": "conversation-1"}})

A thread's sandbox is named by the thread (and the tenant), so every process that serves the thread finds the same one
and nothing has to be stored; its id stands in the graph's state as `sandbox_id` for whoever wants to know it.
"""

import podbay.deepagents  # noqa: F401 - first, because it says what to install when something is missing
from podbay.langgraph.manager import SandboxManager
from podbay.langgraph.state import SANDBOX_KEY, SandboxIdMiddleware
from podbay.langgraph.thread import MissingThread, thread_id

__all__ = ["SANDBOX_KEY", "MissingThread", "SandboxIdMiddleware", "SandboxManager", "thread_id"]
