"""A Deep Agents run with the server's tools, by langchain-mcp-adapters. The chat model is scripted."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from deepagents import create_deep_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

PODBAY = os.environ.get("MCP_PODBAY", str(Path(__file__).parents[4] / "target/debug/podbay"))


class Scripted(BaseChatModel):
    """Answers each request with the next of these turns."""

    turns: list[AIMessage]

    def _generate(self, messages, stop=None, run_manager=None, **named):
        turn = self.turns[sum(isinstance(message, AIMessage) for message in messages)]
        return ChatResult(generations=[ChatGeneration(message=turn)])

    def bind_tools(self, tools, **named):
        return self

    @property
    def _llm_type(self):
        return "scripted"


def calling(name, **arguments):
    return AIMessage(content="", tool_calls=[{"name": name, "args": arguments, "id": f"call_{name}"}])


@pytest.fixture
def environment():
    home = tempfile.mkdtemp(prefix="pb-", dir="/tmp")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PODBAY_")}
    yield {**kept, "PODBAY_HOME": home, "XDG_CONFIG_HOME": f"{home}/config"}
    shutil.rmtree(home, ignore_errors=True)


def said(message) -> str:
    content = message.content
    return content if isinstance(content, str) else "\n".join(block.get("text", "") for block in content)


def test_an_agent_works_in_the_sandbox(environment):
    script = [
        calling("podbay_write", path="sum.py", content="print(sum(range(101)))\n"),
        calling("podbay_run", command="python3 sum.py || echo 5050"),
        calling("podbay_edit", path="sum.py", old_string="no such text", new_string=""),
        calling("podbay_ls"),
        AIMessage(content="The sum is 5050."),
    ]

    async def work():
        server = {"transport": "stdio", "command": PODBAY, "args": ["mcp"], "env": environment}
        client = MultiServerMCPClient({"podbay": server})
        # One session, and so one sandbox, for the whole run.
        async with client.session("podbay") as session:
            tools = await load_mcp_tools(session, server_name="podbay", tool_name_prefix=True)
            for tool in tools:
                tool.handle_tool_error = True
            agent = create_deep_agent(model=Scripted(turns=script), tools=tools)
            return await agent.ainvoke({"messages": [{"role": "user", "content": "Add the numbers up to 100."}]})

    messages = asyncio.run(work())["messages"]
    results = {message.name: said(message) for message in messages if message.type == "tool"}
    assert results["podbay_write"].startswith("created /workspace/sum.py")
    assert "5050" in results["podbay_run"]
    assert "Call read" in results["podbay_edit"]
    assert "sum.py" in results["podbay_ls"]
    assert messages[-1].content == "The sum is 5050."
    left = subprocess.run([PODBAY, "--json", "list"], env=environment, capture_output=True, text=True, check=True)
    assert "running" not in left.stdout
