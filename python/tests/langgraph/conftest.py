"""Where the tests of graphs run: on this machine, and on the rig's cluster if there is one."""

from __future__ import annotations

import importlib.util
import os
import uuid

import pytest

MISSING = None if importlib.util.find_spec("deepagents") else "deepagents isn't installed: pip install deepagents"
collect_ignore_glob = ["test_*.py"] if MISSING else []


def pytest_report_header() -> list[str]:
    return [f"podbay.langgraph: not tested, {MISSING}"] if MISSING else []


@pytest.fixture(scope="session", params=["local", "raw", "agent-sandbox"])
def settings(request):
    """The settings for each mode."""
    if request.param == "local":
        return {"mode": "local"}
    if not os.environ.get("PODBAY_RIG"):
        pytest.skip("PODBAY_RIG isn't set: no cluster (docs/testing.md)")
    if request.param == "raw":
        return {"mode": "raw", "image": "localhost/debian:1"}
    kubeconfig = os.environ.get("CLAIMS_KUBECONFIG")
    if not kubeconfig:
        pytest.skip("CLAIMS_KUBECONFIG isn't set: no cluster with agent-sandbox (docs/testing.md)")
    return {"mode": "agent-sandbox", "template_name": "python", "kubeconfig": kubeconfig}


@pytest.fixture
def manager(settings):
    """A manager whose sandboxes are deleted afterwards."""
    from podbay.langgraph import SandboxManager

    with SandboxManager(tenant=uuid.uuid4().hex, **settings) as manager:
        yield manager


@pytest.fixture
def model():
    """A model that follows the instructions in the last message."""
    from obedient import ObedientModel

    return ObedientModel()
