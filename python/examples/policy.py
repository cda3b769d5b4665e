"""Rules on paths and commands, and an audit log of everything the agent does.

The sandbox is the security boundary. Rules are guardrails in front of it that keep a well-meaning agent from mistakes.

    MODEL=anthropic:claude-sonnet-4-5 python policy.py "Clean up the workspace"
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from deepagents import create_deep_agent

from podbay.deepagents import ARTEFACT_PATHS, PodbaySandbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.language_models import BaseChatModel


def careful(audit: Callable[[str, str, dict[str, Any]], object]) -> PodbaySandbox:
    """Returns a sandbox that only changes /workspace, refuses some commands, and records everything."""
    return PodbaySandbox(
        allow_prefixes=["/workspace", *ARTEFACT_PATHS],
        deny_prefixes=["/workspace/.git"],
        deny_commands=["rm -rf", "curl", "git push"],
        audit_log=audit,
        strict_audit=True,
    )


def solve(model: BaseChatModel | str, task: str, audit: Callable[[str, str, dict[str, Any]], object]) -> str:
    """Runs the agent and returns its last message."""
    with careful(audit) as sandbox:
        agent = create_deep_agent(model=model, backend=sandbox)
        result = agent.invoke({"messages": [("user", task)]})
        return str(result["messages"][-1].text)


def to_stderr(operation: str, target: str, details: dict[str, Any]) -> None:
    """Prints one line per operation."""
    print(operation, target, json.dumps(details, default=str), file=sys.stderr)


if __name__ == "__main__":
    print(solve(os.environ["MODEL"], sys.argv[1], to_stderr))
