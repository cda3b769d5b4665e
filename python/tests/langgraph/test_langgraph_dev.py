"""The real `langgraph dev`: its server refuses code that blocks the event loop, and provides its own checkpointer."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import podbay

AGENT = """
import sys
sys.path.insert(0, {here!r})
from obedient import ObedientModel
from podbay.langgraph import SandboxManager

manager = SandboxManager(tenant={tenant!r}, **{settings!r})
graph = manager.create_agent(ObedientModel())
"""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("langgraph_api") is None,
    reason="langgraph dev isn't installed: pip install 'langgraph-cli[inmem]'",
)


@pytest.fixture
def server(tmp_path, settings):
    """Runs `langgraph dev` with one graph and returns its address."""
    tenant = tmp_path.name
    here = str(Path(__file__).parent)
    (tmp_path / "agent.py").write_text(AGENT.format(here=here, tenant=tenant, settings=settings))
    (tmp_path / "langgraph.json").write_text(
        json.dumps({"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}})
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload", "--port", str(port)]
    environment = {**os.environ, "LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait_for(port, process, tmp_path / "log")
        yield f"http://127.0.0.1:{port}", tenant, tmp_path / "log"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(port, process, log):
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail(f"langgraph dev didn't start: {log.read_text()}")


def test_a_thread_keeps_its_sandbox_from_run_to_run(server, settings):
    from langgraph_sdk import get_client

    url, tenant, log = server

    async def turns():
        client = get_client(url=url)
        try:
            thread = (await client.threads.create())["thread_id"]
            states = [
                await client.runs.wait(thread, "agent", input={"messages": [{"role": "user", "content": order}]})
                for order in ["run echo first > kept", "run cat kept"]
            ]
            return thread, states
        finally:
            await client.aclose()

    thread, states = asyncio.run(turns())
    try:
        assert "messages" in states[1], (states, log.read_text())
        assert states[1]["messages"][-1]["content"].startswith("first\n"), states
        assert states[1]["sandbox_id"] == podbay.sandbox_id(tenant, thread)
    finally:
        podbay.Provider(**settings).delete(podbay.sandbox_id(tenant, thread))
    assert "BlockingError" not in log.read_text()
