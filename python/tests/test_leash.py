"""A sandbox ends with the process that holds its leash, however that process ends."""

import subprocess
import sys
import time
import uuid

import pytest

import podbay
from podbay.leash import Leash

HOLDER = """
import sys, time
from podbay.leash import Leash
leash = Leash({"mode": "local"}, sys.argv[1])
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def stray():
    """A sandbox that nothing else would delete."""
    sandbox = podbay.Sandbox(id=f"leash-{uuid.uuid4().hex[:8]}", leashed=False).open()
    yield sandbox
    podbay.Provider().delete(sandbox.id)


def there(sandbox):
    return sandbox.id in {listed.id for listed in podbay.Provider().list() if listed.phase == "running"}


def test_a_holder_that_is_killed(stray):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, stray.id], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    assert there(stray)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    deadline = time.monotonic() + 30
    while there(stray):
        assert time.monotonic() < deadline, "it outlived the process"
        time.sleep(0.05)


def test_letting_go(stray):
    leash = Leash({"mode": "local"}, stray.id)
    assert there(stray)
    leash.let_go()
    assert not there(stray)
    # It is no error if the sandbox was never created or no longer exists.
    Leash({"mode": "local"}, "leash-never-made").let_go()
