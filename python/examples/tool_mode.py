"""A sandbox as a tool: the agent's files are in its state, and each call runs code in a fresh sandbox.

MODEL=anthropic:claude-sonnet-4-5 python tool_mode.py data.csv "What is the mean of the second column?"
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepagents import create_deep_agent

from podbay.tool import PROMPT_SUFFIX, execute_python_tool

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


def analyse(model: BaseChatModel | str, file: Path, question: str) -> str:
    """Asks the agent a question about a file."""
    agent = create_deep_agent(
        model=model,
        tools=[execute_python_tool(timeout=60, memory="512MiB")],
        system_prompt="You are a data analyst." + PROMPT_SUFFIX,
    )
    files: dict[str, Any] = {f"/{file.name}": {"content": file.read_text(), "encoding": "utf-8"}}
    result = agent.invoke({"messages": [("user", question)], "files": files})
    return str(result["messages"][-1].text)


if __name__ == "__main__":
    print(analyse(os.environ["MODEL"], Path(sys.argv[1]), sys.argv[2]))
