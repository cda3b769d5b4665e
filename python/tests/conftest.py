"""Fixtures for all tests: a separate home for sandboxes, and a sandbox per test."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from router import Router

import podbay

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session", autouse=True)
def home() -> Iterator[Path]:
    """Keeps the tests' sandboxes apart from the user's, and checks that none is left behind."""
    for name in list(os.environ):
        if name.startswith("PODBAY_") and name not in {
            "PODBAY_RIG",
            "PODBAY_RIG_NAME",
            "PODBAY_REQUIRE",
            "PODBAY_SOAK",
        }:
            del os.environ[name]
    # The path must be short, because paths of sockets are limited.
    home = Path(tempfile.mkdtemp(prefix="pb-", dir="/tmp"))
    os.environ["PODBAY_HOME"] = str(home)
    # Ignore the settings of the user who runs the tests.
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


@pytest.fixture(scope="session")
def router(tmp_path_factory) -> Iterator[Router]:
    """agent-sandbox's router; skips the test if there is no cluster with it."""
    claims, harness = (os.environ.get(name) for name in ("CLAIMS_KUBECONFIG", "HARNESS_KUBECONFIG"))
    if not (os.environ.get("PODBAY_RIG") and claims and harness and os.environ.get("RIG_KUBECTL")):
        pytest.skip("CLAIMS_KUBECONFIG isn't set: no cluster with agent-sandbox (docs/testing.md)")
    namespace = json.loads(Path(claims).read_text())["contexts"][0]["context"]["namespace"]
    router = Router(harness, namespace, tmp_path_factory.mktemp("router"))
    yield router
    router.close()
