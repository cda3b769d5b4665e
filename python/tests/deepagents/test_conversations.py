"""One backend object for all conversations: each has its own sandbox, in every process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from deepagents import create_deep_agent
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from test_agent_runs import answers, asked

import podbay
from places import settings
from podbay.deepagents import PodbaySandbox, thread_id
from scripted import Scripted, call, calls


@pytest.fixture(params=["local", "raw-debian"])
def place(request):
    """One kind of pod is enough: the image makes no difference here."""
    return request.param


@pytest.fixture
def conversations(place):
    """A backend for conversations, its manager, and a function that names new ones, which are deleted at the end."""
    manager = podbay.Manager(**settings(place))
    backend = PodbaySandbox(manager=manager, tenant="acme")
    threads = []

    def new():
        threads.append(uuid.uuid4().hex)
        return threads[-1]

    with backend:
        yield backend, manager, new
    for thread in threads:
        backend.release(thread)


def config(thread):
    return {"configurable": {"thread_id": thread}}


SCRIPT = {
    "write": [call("write_file", file_path="/workspace/mine", content="first"), "done"],
    "look": [call("execute", command="cat mine"), call("glob", pattern="mine"), "done"],
}


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_each_has_its_own(conversations, how):
    backend, manager, new = conversations
    agent = create_deep_agent(model=Scripted(script=SCRIPT), backend=backend, checkpointer=InMemorySaver())

    async def run(text, thread):
        if how == "async":
            return answers(await agent.ainvoke(asked(text), config(thread)))
        return answers(agent.invoke(asked(text), config(thread)))

    one, two = new(), new()
    await run("write", one)
    assert (await run("look", one))[-2:] == ["first\n[Command succeeded with exit code 0]", "['/workspace/mine']"]
    assert (await run("look", two))[-1] == "No files found"
    ids = {listed.id for listed in manager.list("acme")}
    assert {podbay.sandbox_id("acme", one), podbay.sandbox_id("acme", two)} <= ids


async def test_many_at_once(conversations):
    backend, _, new = conversations
    agent = create_deep_agent(model=Scripted(script=SCRIPT), backend=backend, checkpointer=InMemorySaver())
    threads = [new() for _ in range(8)]
    await asyncio.gather(*(agent.ainvoke(asked("write"), config(thread)) for thread in threads[::2]))
    looked = await asyncio.gather(*(agent.ainvoke(asked("look"), config(thread)) for thread in threads))
    found = ["first" in answers(result)[-2] for result in looked]
    assert found == [True, False] * 4


async def test_subagents_are_part_of_the_conversation(conversations):
    backend, _, new = conversations
    tasks = [("task", {"description": f"be {n}", "subagent_type": "general-purpose"}) for n in range(3)]
    script = {"work": [calls(*tasks), call("execute", command="cat /workspace/*"), "done"]}
    for n in range(3):
        script[f"be {n}"] = [call("write_file", file_path=f"/workspace/{n}", content=f"{n} "), "done"]
    agent = create_deep_agent(model=Scripted(script=script), backend=backend)
    for how in ("sync", "async"):
        thread = config(new())
        result = agent.invoke(asked("work"), thread) if how == "sync" else await agent.ainvoke(asked("work"), thread)
        assert answers(result)[-1].startswith("0 1 2 ")


async def test_a_conversation_whose_sandbox_is_over_gets_another(conversations):
    backend, manager, new = conversations
    agent = create_deep_agent(model=Scripted(script=SCRIPT), backend=backend, checkpointer=InMemorySaver())
    thread = new()

    async def ask(text):
        return answers(await agent.ainvoke(asked(text), config(thread)))

    await ask("write")
    assert backend.release(thread)
    assert "No such file" in (await ask("look"))[-2]
    await ask("write")
    # Deleted by someone else. A pod may still answer while it terminates; the call that finds it gone fails,
    # and the next gets a new one.
    assert manager.provider.delete(podbay.sandbox_id("acme", thread))
    said = []
    async with asyncio.timeout(60):
        while not said or "No such file" not in said[-1]:
            said.append((await ask("look"))[-2])
    kinds = [0 if text.startswith("first") else 1 if text.startswith("Error: ") else 2 for text in said]
    assert kinds == sorted(kinds), said


def test_without_a_conversation(conversations):
    backend, _, _ = conversations
    assert thread_id() is None
    assert "thread_id" in backend.execute("true").output
    agent = create_deep_agent(model=Scripted(script=SCRIPT), backend=backend)
    result = agent.invoke(asked("look"))
    assert all("thread_id" in said for said in answers(result))
    with pytest.raises(LookupError, match="thread_id"):
        backend.release()


def test_few_connections_are_kept(monkeypatch):
    """A process that has served thousands of conversations doesn't keep thousands of connections open."""
    monkeypatch.setattr("podbay.deepagents.conversations.KEPT", 2)
    backend = PodbaySandbox(per_thread=True)
    threads = [uuid.uuid4().hex for _ in range(4)]

    def within(thread, work):
        return RunnableLambda(lambda _: work()).invoke(None, config(thread))

    for thread in threads:
        assert within(thread, lambda: backend.write("/workspace/f", thread_id())).error is None
    assert len(backend._source._open) == 2
    for thread in threads:
        assert within(thread, lambda: backend.read("/workspace/f")).file_data["content"] == thread
        assert within(thread, lambda: backend.id) == podbay.sandbox_id("", thread)
    for thread in threads:
        assert within(thread, backend.release)
    assert backend.release(threads[0]) is False


PROCESS = """
import json, sys
from deepagents import create_deep_agent
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from podbay.deepagents import PodbaySandbox
from scripted import Scripted, call
from test_agent_runs import answers, asked

made, database, thread, resume = json.loads(sys.argv[1])
script = {"deploy": [
    call("write_file", file_path="/workspace/plan", content="the plan"),
    call("execute", command="cat plan; echo; echo $$ > pid"),
    "deployed",
]}
backend = PodbaySandbox(per_thread=True, tenant="acme", **made)
with SqliteSaver.from_conn_string(database) as saver:
    agent = create_deep_agent(
        model=Scripted(script=script), backend=backend, checkpointer=saver, interrupt_on={"execute": True}
    )
    given = Command(resume={"decisions": [{"type": "approve"}]}) if resume else asked("deploy")
    result = agent.invoke(given, {"configurable": {"thread_id": thread}})
    print(json.dumps([answers(result), result["messages"][-1].text, "__interrupt__" in result]))
"""


def test_interrupted_and_resumed_in_another_process(conversations, place, tmp_path):
    _, manager, new = conversations
    thread = new()

    def process(resume):
        arguments = json.dumps([settings(place), str(tmp_path / "checkpoints.db"), thread, resume])
        done = subprocess.run(
            [sys.executable, "-c", PROCESS, arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    said, last, interrupted = process(resume=False)
    assert (len(said), last, interrupted) == (1, "", True)
    said, last, interrupted = process(resume=True)
    assert said[1] == "the plan\n\n[Command succeeded with exit code 0]"
    assert (last, interrupted) == ("deployed", False)
    # This process, which has seen neither of them, finds the same files.
    sandbox = manager.acquire(thread, "acme")
    assert sandbox.read_bytes("/workspace/plan") == b"the plan"
