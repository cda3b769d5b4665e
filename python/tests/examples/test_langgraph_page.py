"""The examples of docs/langgraph.md run unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "langgraph.md"


def blocks():
    text = PAGE.read_text()
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        line = text[: match.start()].count("\n") + 2
        yield pytest.param(match.group(1), line, id=f"line {line}")


@pytest.mark.parametrize(("program", "line"), list(blocks()))
def test_it_runs(program, line, model):
    code = compile("\n" * (line - 1) + program, str(PAGE), "exec", dont_inherit=True)
    exec(code, {"__name__": "__main__", "model": model})
