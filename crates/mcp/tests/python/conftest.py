"""The program under test, a home of its own for sandboxes, and servers over both transports."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

PODBAY = os.environ.get("MCP_PODBAY", str(Path(__file__).parents[4] / "target/debug/podbay"))


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def environment():
    """What the server's environment is, with a home of the tests' own. It is empty when they are done."""
    # The path must be short, because paths of sockets are limited.
    home = Path(tempfile.mkdtemp(prefix="pb-", dir="/tmp"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PODBAY_")}
    environment = {**kept, "PODBAY_HOME": str(home), "XDG_CONFIG_HOME": str(home / "config")}
    yield environment
    try:
        wait_until(lambda: running(environment) == [], "sandboxes are left")
    finally:
        subprocess.run([PODBAY, "reap", "--idle", "0s"], env=environment, capture_output=True, check=False)
        shutil.rmtree(home, ignore_errors=True)


def running(environment) -> list[str]:
    """The ids of the sandboxes that run."""
    command = [PODBAY, "--json", "list"]
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    sandboxes = json.loads(listed)
    sandboxes = sandboxes.get("sandboxes", sandboxes) if isinstance(sandboxes, dict) else sandboxes
    return [sandbox.get("id") or sandbox["name"] for sandbox in sandboxes if sandbox.get("phase", "running") == "running"]


def wait_until(check, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def token_file(folder: Path, *tokens: str) -> str:
    """A file with these tokens that nobody else can read."""
    path = folder / "tokens"
    path.touch(0o600)
    path.write_text("".join(f"{token}\n" for token in tokens))
    return str(path)


@contextmanager
def listening(environment, *arguments, address="127.0.0.1:0"):
    """A server over HTTP: its process and its URL."""
    command = [PODBAY, "mcp", "--listen", address, *arguments]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline()
            found = re.search(r"http://\S+/mcp", line)
            assert found, line + process.stderr.read()
            yield process, found.group()
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def http_server(environment):
    with listening(environment) as (_, url):
        yield url
