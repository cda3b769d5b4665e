"""How often tests repeat things. Not in conftest.py, because only one module of that name can be imported."""

from __future__ import annotations

import os


def long(short: int, when_there_is_time: int) -> int:
    """Returns how often to repeat something: more under `cargo xtask soak`, which sets PODBAY_SOAK."""
    return when_there_is_time if os.environ.get("PODBAY_SOAK") else short
