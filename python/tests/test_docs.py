"""The examples of the documentation run unchanged."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/python.md", "python/README.md"]


def examples():
    for page in PAGES:
        text = (ROOT / page).read_text()
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            line = text[: match.start()].count("\n") + 2
            yield pytest.param(match.group(1), page, line, id=f"{page}:{line}")


@pytest.mark.parametrize(("program", "page", "line"), list(examples()))
def test_examples_run(program, page, line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    # Compile with the page's line numbers, so that a failure points there.
    code = compile("\n" * (line - 1) + program, str(ROOT / page), "exec")
    exec(code, {"__name__": "__main__"})
