"""What tests share: a home of their own for sandboxes, and one sandbox a test."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import podbay

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def home() -> Iterator[Path]:
    """Sandboxes of the tests live apart from those of the user, and none is left behind."""
    for name in list(os.environ):
        if name.startswith("PODBAY_") and name not in {
            "PODBAY_RIG",
            "PODBAY_RIG_NAME",
            "PODBAY_REQUIRE",
            "PODBAY_SOAK",
        }:
            del os.environ[name]
    # Sockets have short names, so this has to be a short one too.
    home = Path(tempfile.mkdtemp(prefix="pb-", dir="/tmp"))
    os.environ["PODBAY_HOME"] = str(home)
    # Whoever runs the tests may have settings of their own.
    os.environ["XDG_CONFIG_HOME"] = str(home / "config")
    yield home
    provider = podbay.Provider()
    left = [listed.id for listed in provider.list() if listed.phase == "running"]
    for sandbox in left:
        provider.delete(sandbox)
    provider.cleanup()
    shutil.rmtree(home, ignore_errors=True)
    assert not left, f"tests left sandboxes behind: {left}"


@pytest.fixture
def sandbox() -> Iterator[podbay.Sandbox]:
    with podbay.Sandbox() as sandbox:
        yield sandbox
