"""Several processes serve the same threads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from obedient import on, said, told

REPLICA = """
import json, sys
sys.path.insert(0, sys.argv[1])
from obedient import ObedientModel, on, said, told
from podbay.langgraph import SandboxManager

tenant, settings, thread, order = json.loads(sys.argv[2])
manager = SandboxManager(tenant=tenant, **settings)
result = manager.create_agent(ObedientModel()).invoke(told(order), on(thread))
print(json.dumps([said(result), result["sandbox_id"], manager.provider.mode]))
"""


def replica(manager, settings, thread, order):
    """Starts another process of the application that only knows the thread's name."""
    given = json.dumps([manager.tenant, settings, thread, order])
    # -P: import the installed package, not the sources in the working directory, which have no native module.
    command = [sys.executable, "-P", "-c", REPLICA, str(Path(__file__).parent), given]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answer(process):
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    said_there, sandbox_id, _ = json.loads(printed.splitlines()[-1])
    return said_there, sandbox_id


def test_two_processes_serve_one_thread(manager, model, settings):
    manager.acquire("one")  # Made here, so that it ends here.
    agent = manager.create_agent(model)
    there, sandbox_id = answer(replica(manager, settings, "one", "run echo from there > kept; hostname"))
    assert sandbox_id == manager.sandbox_id("one")
    here = said(agent.invoke(told("run hostname; cat kept; echo from here >> kept"), on("one")))
    assert here.split("\n")[0] == there.split("\n")[0]
    assert "from there" in here
    there, _ = answer(replica(manager, settings, "one", "run cat kept"))
    assert "from here" in there


def test_processes_that_begin_a_thread_at_once_get_one_sandbox(manager, settings):
    replicas = [replica(manager, settings, "new", f"run echo {n} >> /workspace/kept") for n in range(3)]
    try:
        ends = [process.communicate(timeout=120)[0] for process in replicas]
        assert [process.returncode for process in replicas] == [0, 0, 0]
        assert {json.loads(end.splitlines()[-1])[1] for end in ends} == {manager.sandbox_id("new")}
        kept = manager.provider.reconnect(manager.sandbox_id("new")).read_bytes("/workspace/kept")
        assert sorted(kept.split()) == [b"0", b"1", b"2"]
    finally:
        for process in replicas:
            process.kill()
            process.communicate()
        # The process that created it is gone, so nobody else deletes it.
        manager.provider.delete(manager.sandbox_id("new"))
