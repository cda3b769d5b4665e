"""Where the programs written for other packages run."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

MISSING = None if importlib.util.find_spec("deepagents") else "deepagents isn't installed: pip install deepagents"
collect_ignore_glob = ["programs/*", *(["test_*.py"] if MISSING else [])]

# The obedient model is there.
sys.path.insert(0, str(Path(__file__).parents[1] / "langgraph"))


def pytest_report_header() -> list[str]:
    return [f"podbay.compat: not tested, {MISSING}"] if MISSING else []


def raw() -> dict[str, str]:
    """The rig's cluster; skips the test if there is none."""
    if not os.environ.get("PODBAY_RIG"):
        pytest.skip("PODBAY_RIG isn't set: no cluster (docs/testing.md)")
    from cluster_api import Api

    return {"MODE": "raw", "TEMPLATE": None, "IMAGE": "localhost/debian:1", "NAMESPACE": Api().namespace}


def claims(monkeypatch) -> dict[str, str]:
    """The rig's cluster with agent-sandbox; skips the test if there is none."""
    kubeconfig = os.environ.get("CLAIMS_KUBECONFIG")
    if not os.environ.get("PODBAY_RIG") or not kubeconfig:
        pytest.skip("CLAIMS_KUBECONFIG isn't set: no cluster with agent-sandbox (docs/testing.md)")
    from cluster_api import Api

    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    namespace = Api(kubeconfig).namespace
    return {"MODE": "agent-sandbox", "TEMPLATE": "python", "IMAGE": "unused", "NAMESPACE": namespace}


@pytest.fixture
def place(request, monkeypatch):
    """The names that a program uses for its environment, in the mode that is the test's parameter."""
    if request.param == "raw":
        return raw()
    if request.param == "agent-sandbox":
        return claims(monkeypatch)
    return {"MODE": "local", "TEMPLATE": None, "IMAGE": "unused", "NAMESPACE": "default"}


@pytest.fixture
def cluster():
    """The same, for programs that need pods."""
    return raw()


@pytest.fixture
def model():
    """A model that follows the instructions in the last message."""
    from obedient import ObedientModel

    return ObedientModel()
