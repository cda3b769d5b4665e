"""The examples as modules, and a model for them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

MISSING = None if importlib.util.find_spec("deepagents") else "deepagents isn't installed: pip install deepagents"
collect_ignore_glob = ["test_*.py"] if MISSING else []

EXAMPLES = Path(__file__).parents[2] / "examples"
# The obedient model is there.
sys.path.insert(0, str(Path(__file__).parents[1] / "langgraph"))


def pytest_report_header() -> list[str]:
    return [f"examples: not tested, {MISSING}"] if MISSING else []


@pytest.fixture
def example():
    """Imports an example by its name."""

    def load(name):
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    yield load
    for name in [name for name in sys.modules if name.startswith("example_")]:
        del sys.modules[name]


@pytest.fixture
def model():
    """A model that follows the instructions in the last message."""
    from obedient import ObedientModel

    return ObedientModel()
