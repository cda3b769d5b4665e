"""Backends for the tests, one for each mode and image."""

from __future__ import annotations

import importlib.util
import uuid
from pathlib import Path

import pytest

from patience import leave_to_soak, parameter
from places import PLACES, settings

MISSING = None if importlib.util.find_spec("deepagents.backends") else "deepagents isn't installed"
collect_ignore_glob = ["test_*.py"] if MISSING else []


def pytest_report_header() -> list[str]:
    return [f"podbay.deepagents: not tested, {MISSING}"] if MISSING else []


ENOUGH = {
    # podbayd does the same in every image: crates/podbay/tests/raw.rs shows that in each of them.
    "test_backend_commands": {"local", "raw-debian"},
    "test_backend_operations": {"local", "raw-debian"},
    # Where results are put aside is different on a read-only root.
    "test_agent_runs": {"local", "raw-read-only", "agent-sandbox"},
}
"""The places of modules for which not all prove something new. LangChain's standard suite runs in all of them."""


def repeats(item: pytest.Item) -> bool:
    """Whether a test does in one place what it does in another."""
    if item.path.parent != Path(__file__).parent:
        return False
    if item.path.stem == "test_dcode":
        # dcode is the same in all modes, and a run takes 20 seconds of processor time.
        return parameter(item, "where") == "agent-sandbox"
    place = parameter(item, "place")
    # Where the frameworks' own paths lead depends on the pod.
    is_everywhere = place is None or getattr(item, "originalname", None) == "test_artefacts"
    return not is_everywhere and place not in ENOUGH.get(item.path.stem, PLACES)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_to_soak(config, items, repeats)


@pytest.fixture(scope="session", params=PLACES)
def place(request):
    """A mode and image to test with."""
    return request.param


@pytest.fixture(scope="module")
def backend(place):
    """A shared backend for each mode and image, for tests that stay in their own directory."""
    from podbay.deepagents import PodbaySandbox

    with PodbaySandbox(**settings(place)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def local():
    """A backend on this machine."""
    from podbay.deepagents import PodbaySandbox

    with PodbaySandbox() as sandbox:
        yield sandbox


@pytest.fixture
def root():
    """A directory that no other test uses; it doesn't exist yet."""
    return f"/workspace/{uuid.uuid4().hex[:12]}"
