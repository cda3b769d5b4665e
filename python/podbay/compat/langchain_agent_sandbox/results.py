"""Results in the forms that langchain-agent-sandbox documents."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Self

from deepagents.backends.protocol import ReadResult

if TYPE_CHECKING:
    from deepagents.backends.protocol import GrepMatch, GrepResult

_LINE = 2000


class NumberedText(str, ReadResult):
    """A page of a file: a text with line numbers or an error message, and also Deep Agents' `ReadResult`."""

    def __new__(cls, result: ReadResult, offset: int) -> Self:
        """Creates the text from Deep Agents' result of a read at a line offset."""
        return super().__new__(cls, _text(result, offset))

    def __init__(self, result: ReadResult, offset: int) -> None:  # noqa: ARG002
        for field in fields(ReadResult):
            setattr(self, field.name, getattr(result, field.name))

    __eq__ = str.__eq__
    __hash__ = str.__hash__
    __repr__ = str.__repr__


def _text(result: ReadResult, offset: int) -> str:
    if result.error is not None:
        return f"Error: {result.error}"
    if result.file_data is None:
        return ""
    content = result.file_data["content"]
    if result.start_line is None:
        # An empty file, or a binary one.
        return content
    lines = content.split("\n")
    first = result.start_line or offset + 1
    return "\n".join(f"{number}: {line[:_LINE]}" for number, line in enumerate(lines, first))


def matches_or_error(found: GrepResult) -> list[GrepMatch] | str:
    """Returns the matches, or the error as a text."""
    return found.error if found.error is not None else found.matches or []
