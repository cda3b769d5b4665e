"""Where the tests of the Deep Agents backend run: on this machine, and on the rig's cluster when there is one."""

from __future__ import annotations

import importlib.util
import os
import uuid

import pytest

MISSING = None if importlib.util.find_spec("deepagents.backends") else "deepagents isn't installed: pip install deepagents"
collect_ignore_glob = ["test_*.py"] if MISSING else []

IMAGES = {
    "raw-debian": "PODBAY_RIG_IMAGE_DEBIAN",
    "raw-busybox": "PODBAY_RIG_IMAGE_BUSYBOX",
}
"""The rig's images, and the variables with their names (`cargo xtask cluster env`)."""

PLACES = ["local", *IMAGES]


def pytest_report_header() -> list[str]:
    return [f"podbay.deepagents: not tested, {MISSING}"] if MISSING else []


def settings(place: str) -> dict[str, object]:
    """What makes a sandbox in that place, or the end of the test with the reason why there can't be one."""
    if place == "local":
        return {}
    if not os.environ.get("PODBAY_RIG"):
        pytest.skip("PODBAY_RIG isn't set: no cluster (docs/testing.md)")
    image = os.environ.get(IMAGES[place])
    if image is None:
        pytest.fail(f"PODBAY_RIG is set but {IMAGES[place]} isn't: eval $(cargo xtask cluster env)")
    return {"mode": "raw", "image": image, "namespace": os.environ.get("PODBAY_RIG_NAMESPACE", "default")}


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
