"""The examples of docs/deepagents.md run unchanged, except for the image and the namespace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from places import settings
from scripted import Scripted, call

PAGE = Path(__file__).parents[3] / "docs/deepagents.md"
ASKED = "Write a haiku to /workspace/haiku.txt"


def examples():
    text = PAGE.read_text()
    for match in re.finditer(r"^(<!-- needs a cluster -->\n)?```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        line = text[: match.start(2)].count("\n") + 1
        yield pytest.param(match.group(2), line, match.group(1) is not None, id=f"line {line}")


@pytest.mark.parametrize(("program", "line", "cluster"), examples())
def test_example(program, line, cluster, capsys):
    if cluster:
        program = program.replace('"python:3.12-slim"', repr(settings("raw-debian")["image"]))
        program = program.replace(', namespace="agents"', "")
    haiku = call("write_file", file_path="/workspace/haiku.txt", content="old pond\n")
    model = Scripted(script={ASKED: [haiku, "It is there."]})
    # Compile with the page's line numbers, so that a failure points there.
    exec(compile("\n" * (line - 1) + program, str(PAGE), "exec"), {"__name__": "__main__", "model": model})
    if "print(sandbox.read(" in program:
        assert capsys.readouterr().out == "old pond\n"
    if cluster:
        assert capsys.readouterr().out == "4\n\n"


def test_all_of_them_were_found():
    assert len(list(examples())) == PAGE.read_text().count("```python") == 6
