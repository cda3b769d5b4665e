"""The stub matches the native module."""

import subprocess
import sys

import pytest

import podbay


def test_the_stub_is_the_module():
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "podbay._native"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_is_exported_and_documented():
    for name in podbay.__all__:
        value = getattr(podbay, name)
        if isinstance(value, type) and value is not podbay.PodbayError:
            assert value.__doc__, name
            for method in vars(value):
                if not method.startswith("_") and callable(getattr(value, method)):
                    assert getattr(value, method).__doc__, f"{name}.{method}"


def test_results_show_what_they_are(sandbox):
    sandbox.write("f", "x\n")
    for value in (
        sandbox.read("f"),
        sandbox.ls(),
        sandbox.stat("f"),
        sandbox.glob("*"),
        sandbox.grep("x"),
        sandbox.hello(),
    ):
        assert repr(value).startswith(type(value).__name__ + "(")
        assert " object at 0x" not in repr(value)
