"""How often tests repeat things. Not in conftest.py, because only one module of that name can be imported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def long(short: int, when_there_is_time: int) -> int:
    """Returns how often to repeat something: more under `cargo xtask soak`, which sets PODBAY_SOAK."""
    return when_there_is_time if os.environ.get("PODBAY_SOAK") else short


def leave_to_soak(config: pytest.Config, items: list[pytest.Item], repeats: Callable[[pytest.Item], bool]) -> None:
    """Deselects tests that repeat what others prove, except under `cargo xtask soak`. docs/testing.md lists them."""
    if os.environ.get("PODBAY_SOAK"):
        return
    left = [item for item in items if repeats(item)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def parameter(item: pytest.Item, name: str) -> object:
    """Returns the value of a test's parameter, or None."""
    return getattr(item, "callspec", None) and item.callspec.params.get(name)
