"""Backends for the tests, one for each mode and image."""

from __future__ import annotations

import importlib.util
import uuid

import pytest

from places import PLACES, settings

MISSING = None if importlib.util.find_spec("deepagents.backends") else "deepagents isn't installed"
collect_ignore_glob = ["test_*.py"] if MISSING else []


def pytest_report_header() -> list[str]:
    return [f"podbay.deepagents: not tested, {MISSING}"] if MISSING else []


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
