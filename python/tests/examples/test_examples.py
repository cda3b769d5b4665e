"""The examples work."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from langgraph.checkpoint.memory import MemorySaver
from obedient import on, said, told

import podbay
from podbay.langgraph import SandboxManager

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        "one_shot",
        "fastapi_app",
        "langgraph_agent",
        "tool_mode",
        "policy",
    }


def test_one_shot(example, model):
    before = {listed.id for listed in podbay.Provider("local").list()}
    assert example("one_shot").solve(model, "run echo $((20 + 3))").startswith("23\n")
    assert {listed.id for listed in podbay.Provider("local").list()} == before


def test_fastapi(example, model):
    with SandboxManager("local", tenant="fastapi-example") as manager:
        app = example("fastapi_app").create_app(model, manager)
        with TestClient(app) as client:

            def chat(thread, message):
                return client.post(f"/chat/{thread}", params={"message": message}).json()

            assert chat("one", "run echo hello > greeting")["sandbox"] == manager.sandbox_id("one")
            assert chat("one", "run cat greeting")["reply"].startswith("hello\n")
            assert "No such file" in chat("two", "run cat greeting")["reply"]
        # A server that starts later finds the conversation's sandbox.
        with TestClient(example("fastapi_app").create_app(model, manager)) as client:
            assert chat("one", "run cat greeting")["reply"].startswith("hello\n")


def test_langgraph(example, model):
    module = example("langgraph_agent")
    with module.manager:
        agent = module.agent(model, checkpointer=MemorySaver())
        agent.invoke(told("run echo kept > file"), on("example-1"))
        assert said(agent.invoke(told("run cat file"), on("example-1"))).startswith("kept\n")

        pipeline = module.pipeline(model, checkpointer=MemorySaver())
        result = asyncio.run(pipeline.ainvoke(told("run cat file"), on("example-1")))
        assert said(result).startswith("kept\n")
        assert result["packages"].startswith("Python 3")
        assert result["sandbox_id"] == module.manager.sandbox_id("example-1")


def test_langgraph_json_names_what_there_is(example):
    module = example("langgraph_agent")
    for place in json.loads((EXAMPLES / "langgraph.json").read_text())["graphs"].values():
        file, name = place.removeprefix("./").split(":")
        assert (EXAMPLES / file).exists()
        assert callable(getattr(module, name))


def test_tool_mode(example, model, tmp_path):
    data = tmp_path / "data.csv"
    data.write_text("a,1\nb,3\n")
    question = "python print(sum(int(row.split(',')[1]) for row in open('/app/data.csv')) / 2)"
    assert example("tool_mode").analyse(model, data, question) == "exit=0\n2.0\n"


def test_policy(example, model):
    module = example("policy")
    record = []

    def audit(operation, target, details):
        record.append((operation, target, details))

    denied = module.solve(model, "run rm -rf /workspace", audit)
    assert "rm -rf" in denied
    assert module.solve(model, "run echo allowed", audit).startswith("allowed\n")
    with module.careful(audit) as sandbox:
        assert sandbox.write("/workspace/a", "x").error is None
        assert sandbox.write("/tmp/a", "x").error is not None
        assert sandbox.write("/workspace/.git/config", "x").error is not None
    assert [operation for operation, target, _ in record if "rm -rf" in target]
    assert len(record) >= 5


# Python reports the callback's exception, as it should, but pytest treats that as a failure.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_record_that_fails_stops_what_cant_be_recorded(example):
    def broken(operation, target, details):
        if operation not in {"create", "destroy"}:
            raise OSError("the disk is full")

    with example("policy").careful(broken) as sandbox:
        assert sandbox.write("/workspace/a", "x").error is not None
        assert sandbox.execute("true").exit_code != 0
