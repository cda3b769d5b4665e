"""A chat server: every conversation has its own sandbox, and any number of servers can serve any conversation.

pip install fastapi uvicorn
MODEL=anthropic:claude-sonnet-4-5 uvicorn --factory fastapi_app:create_app
curl -X POST 'localhost:8000/chat/conversation-1?message=Install+pandas'
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from langgraph.checkpoint.memory import MemorySaver

from podbay.langgraph import SandboxManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from langchain_core.language_models import BaseChatModel


def create_app(model: BaseChatModel | str | None = None, manager: SandboxManager | None = None) -> FastAPI:
    """Creates the application. Sandboxes end after half an hour without use, not with the server."""
    manager = manager or SandboxManager(idle_ttl="30m")
    # Messages are kept in this process. Several servers need a shared checkpointer such as PostgresSaver; sandboxes
    # are found by the thread's name in any case.
    agent = manager.create_agent(model or os.environ["MODEL"], checkpointer=MemorySaver())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await manager.acleanup()

    app = FastAPI(lifespan=lifespan)

    @app.post("/chat/{thread_id}")
    async def chat(thread_id: str, message: str) -> dict[str, str]:
        config = {"configurable": {"thread_id": thread_id}}
        result = await agent.ainvoke({"messages": [("user", message)]}, config)
        return {"reply": result["messages"][-1].text, "sandbox": result["sandbox_id"]}

    return app
