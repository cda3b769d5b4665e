"""Two replicas of the FastAPI example, as processes behind a load balancer, serve one conversation."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("uvicorn") is None or importlib.util.find_spec("fastapi") is None,
    reason="FastAPI and uvicorn aren't installed: pip install fastapi uvicorn",
)

SERVER = """
import json, sys
sys.path[:0] = sys.argv[1:3]
import uvicorn
from fastapi_app import create_app
from obedient import ObedientModel
from podbay.langgraph import SandboxManager

tenant, settings, port = json.loads(sys.argv[3])
app = create_app(ObedientModel(), SandboxManager(tenant=tenant, **settings))
uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
"""


def start(tenant, settings):
    """Starts a replica and returns it with its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = Path(__file__).parent
    places = [str(here.parents[1] / "examples"), str(here)]
    command = [sys.executable, "-P", "-c", SERVER, *places, json.dumps([tenant, settings, port])]
    return subprocess.Popen(command), port


def wait_for(process, port):
    for _ in range(300):
        assert process.poll() is None, "the replica ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    pytest.fail("the replica didn't start")


def test_two_replicas_serve_one_conversation(manager, settings):
    import httpx

    manager.acquire("one")  # Made here, so that it ends here.
    replicas = [start(manager.tenant, settings) for _ in range(2)]
    try:
        for process, port in replicas:
            wait_for(process, port)
        ports = [port for _, port in replicas]

        def chat(turn, message):
            url = f"http://127.0.0.1:{ports[turn % 2]}/chat/one"
            answer = httpx.post(url, params={"message": message}, timeout=60).raise_for_status().json()
            assert answer["sandbox"] == manager.sandbox_id("one")
            return answer["reply"]

        for turn in range(6):
            chat(turn, f"run echo {turn} >> kept")
        assert chat(6, "run cat kept").startswith("0\n1\n2\n3\n4\n5\n")
        # One that ends, as in a rolling update, takes nothing with it.
        replicas[0][0].terminate()
        replicas[0][0].wait(30)
        assert chat(7, "run cat kept").startswith("0\n1\n2\n3\n4\n5\n")
    finally:
        for process, _ in replicas:
            process.kill()
            process.wait()
