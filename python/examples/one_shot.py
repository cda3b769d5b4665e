"""One sandbox for one task: the agent works in the sandbox, which is deleted afterwards.

    MODEL=anthropic:claude-sonnet-4-5 python one_shot.py "Write and run a script that prints the Fibonacci sequence"

The sandbox runs on this machine, or with `PODBAY_MODE=raw` in the cluster of your kubeconfig.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from deepagents import create_deep_agent

from podbay.deepagents import PodbaySandbox

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


def solve(model: BaseChatModel | str, task: str) -> str:
    """Runs the agent and returns its last message."""
    with PodbaySandbox() as sandbox:
        agent = create_deep_agent(model=model, backend=sandbox)
        result = agent.invoke({"messages": [("user", task)]})
        return str(result["messages"][-1].text)


if __name__ == "__main__":
    print(solve(os.environ["MODEL"], sys.argv[1]))
