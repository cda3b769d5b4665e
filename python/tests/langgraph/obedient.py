"""A chat model for tests of graphs that follows the instructions in the last message.

It keeps no state, so it can serve any number of threads and processes at once. It understands, one per line:

    run COMMAND               the tool execute
    python CODE               the tool execute_python
    delegate TASK             a subagent, which gets the task
    (anything else)           the answer "You said: …"

Its answer is what the tool returned.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class ObedientModel(BaseChatModel):
    """Follows the instructions in the last message."""

    @property
    def _llm_type(self) -> str:
        return "obedient"

    def bind_tools(self, tools: Any, **kwargs: Any) -> ObedientModel:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        # The base class would use a thread, which hides code that blocks the event loop.
        return self._generate(messages)

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            results = []
            for message in reversed(messages):
                if not isinstance(message, ToolMessage):
                    break
                results.append(message.text)
            return AIMessage("\n".join(reversed(results)))
        orders = [self._order(line) for line in last.text.splitlines() if line.strip()]
        calls = [order for order in orders if order is not None]
        return AIMessage("", tool_calls=calls) if calls else AIMessage(f"You said: {last.text}")

    def _order(self, line: str) -> dict[str, Any] | None:
        verb, _, rest = line.partition(" ")
        match verb:
            case "run":
                return _call("execute", command=rest)
            case "python":
                return _call("execute_python", code=json.loads(rest) if rest.startswith('"') else rest)
            case "delegate":
                return _call("task", description=rest, subagent_type="general-purpose")
        return None


def _call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "args": arguments, "id": uuid.uuid4().hex, "type": "tool_call"}


def said(result: dict[str, Any]) -> str:
    """Returns the last answer of a run."""
    return result["messages"][-1].text


def on(thread: str) -> dict[str, Any]:
    """Returns the config of a thread."""
    return {"configurable": {"thread_id": thread}}


def told(order: str) -> dict[str, Any]:
    """Returns the input of a run."""
    return {"messages": [("user", order)]}
