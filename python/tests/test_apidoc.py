"""The reference in docs/ is what the docstrings say."""

from __future__ import annotations

from pathlib import Path

import apidoc

PAGE = Path(__file__).parents[2] / "docs/reference/python.md"


def test_the_reference_is_in_step_with_the_package() -> None:
    assert PAGE.read_text() == apidoc.reference(), "python tests/apidoc.py > ../docs/reference/python.md"


def test_everything_public_says_what_it_is() -> None:
    silent = [line for line in apidoc.reference().splitlines() if line.endswith("|  |")]
    assert not silent, silent
