"""A scripted chat model."""

from __future__ import annotations

import itertools
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult

_numbers = itertools.count()


def call(tool: str, **arguments: Any) -> AIMessage:
    """A turn in which the model calls a tool."""
    return calls((tool, arguments))


def calls(*wanted: tuple[str, dict[str, Any]]) -> AIMessage:
    """A turn in which the model calls several tools at once."""
    return AIMessage(
        content="",
        tool_calls=[{"name": name, "args": args, "id": f"call_{next(_numbers)}"} for name, args in wanted],
    )


class Scripted(BaseChatModel):
    """Answers each request with the next turn of its script.

    It keeps no state: the turn follows from the messages, so a run can be resumed with another object. A subagent's
    task is a request like any other.
    """

    script: dict[str, list[Any]]
    otherwise: str = "a summary of what was said"
    profile: dict[str, Any] | None = None
    seen: list[list[Any]] = []  # noqa: RUF012 - pydantic copies it

    def _generate(self, messages, stop=None, run_manager=None, **named):
        self.seen.append(list(messages))
        return ChatResult(generations=[ChatGeneration(message=self._turn(messages))])

    def _turn(self, messages) -> AIMessage:
        asked = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
        turns = self.script.get(messages[asked].text)
        if turns is None:
            return AIMessage(content=self.otherwise)
        turn = turns[sum(isinstance(message, AIMessage) for message in messages[asked:])]
        turn = turn(messages) if callable(turn) else turn
        return turn.model_copy(deep=True) if isinstance(turn, AIMessage) else AIMessage(content=turn)

    def bind_tools(self, tools, **named):
        return self

    @property
    def _llm_type(self) -> str:
        return "scripted"
