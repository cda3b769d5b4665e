"""Backends for the tests, one in each place."""

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
    """A place with sandboxes."""
    return request.param


@pytest.fixture(scope="module")
def backend(place):
    """A backend in each place, for tests that stay in a directory of their own."""
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
    """A directory that no other test uses. It isn't there yet."""
    return f"/workspace/{uuid.uuid4().hex[:12]}"
