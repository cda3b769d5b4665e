"""How much is done in a test. Not in conftest.py: of several modules of that name only one can be imported."""

from __future__ import annotations

import os


def long(short: int, when_there_is_time: int) -> int:
    """How often something is done: more under `cargo xtask soak`, which sets PODBAY_SOAK."""
    return when_there_is_time if os.environ.get("PODBAY_SOAK") else short
