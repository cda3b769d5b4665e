"""The sandbox as a tool."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from deepagents import create_deep_agent
from langgraph.prebuilt import ToolNode
from obedient import on, said, told

import podbay
from podbay.tool import PROMPT_SUFFIX, execute_python_tool, seed_files


@pytest.fixture
def tool(settings):
    return execute_python_tool(**settings)


def left(settings):
    """Lists the sandboxes. Other tests may have some too, so only the difference before and after counts."""
    return {listed.id for listed in podbay.Provider(**settings).list()}


def directories():
    return set(Path(os.environ.get("TMPDIR", "/tmp")).glob("podbay-app-*"))


def test_virtual_files_are_below_app():
    files = {
        "data.csv": {"content": "a,b\n", "encoding": "utf-8"},
        "/notes.md": {"content": "as Deep Agents names them"},
        "/app/deep/there.txt": {"content": ["two", "lines"]},
        "picture.png": {"content": base64.b64encode(b"\x89PNG\xff").decode(), "encoding": "base64"},
        "plain": "text",
        "./a//b/../c": b"bytes",
        "/application/x": "not below /app yet",
        "umlaut-ä": "ä",
    }
    assert seed_files(files) == [
        ("/app/data.csv", b"a,b\n"),
        ("/app/notes.md", b"as Deep Agents names them"),
        ("/app/deep/there.txt", b"two\nlines"),
        ("/app/picture.png", b"\x89PNG\xff"),
        ("/app/plain", b"text"),
        ("/app/a/c", b"bytes"),
        ("/app/application/x", b"not below /app yet"),
        ("/app/umlaut-ä", "ä".encode()),
    ]
    assert seed_files(None) == []


@pytest.mark.parametrize("path", ["../etc/passwd", "/app/../etc/passwd", "/app", "", "a/../..", "x\0y"])
def test_no_file_leaves_app(path):
    with pytest.raises(ValueError, match="/app"):
        seed_files({path: "x"})


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ({"content": "?", "encoding": "base64"}, "base64"),
        ({"content": "", "encoding": "latin-1"}, "latin-1"),
        (5, "int"),
    ],
)
def test_what_is_no_file_is_refused_by_its_name(file, reason):
    with pytest.raises(ValueError, match=reason) as refused:
        seed_files({"odd.bin": file})
    assert "odd.bin" in str(refused.value)


def test_code_runs_beside_the_files_and_leaves_nothing(tool, settings):
    before = left(settings), directories()
    names = {"code": "import os; print(os.getcwd(), os.listdir())"}
    fresh = tool.invoke(names)
    # The stock runtime's image has its own program there.
    assert settings.get("mode") == "agent-sandbox" or fresh == "exit=0\n/app []\n"
    state = {"files": {"/numbers.txt": {"content": "2\n3\n"}, "helper.py": {"content": "def total(n): return sum(n)"}}}
    code = (
        "from helper import total\nprint(total(map(int, open('/app/numbers.txt'))))\nopen('/app/new', 'w').write('x')"
    )
    assert tool.invoke({"code": code, "state": state}) == "exit=0\n5\n"
    assert tool.invoke(names) == fresh
    assert (left(settings), directories()) == before


def test_it_is_the_same_for_coroutines_and_blocks_no_loop(tool, settings):
    before = left(settings), directories()

    async def calls():
        with blockbuster_ctx():
            state = {"files": {"n.txt": "7"}}
            return await asyncio.gather(
                *(tool.ainvoke({"code": f"print({n} + int(open('n.txt').read()))", "state": state}) for n in range(3))
            )

    assert asyncio.run(calls()) == ["exit=0\n7\n", "exit=0\n8\n", "exit=0\n9\n"]
    assert (left(settings), directories()) == before


def test_what_goes_wrong_in_the_code_is_told(tool):
    assert (
        tool.invoke({"code": "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"})
        == "exit=3\nout\nerr\n"
    )
    told_off = tool.invoke({"code": "1/0"})
    assert told_off.startswith("exit=1\n")
    assert "ZeroDivisionError" in told_off
    assert tool.invoke({"code": "input()"}).startswith("exit=1\n")


def test_code_that_takes_too_long_is_ended_with_its_output(settings):
    begun = time.monotonic()
    tool = execute_python_tool(timeout=1, **settings)
    answer = tool.invoke({"code": "import time; print('so far', flush=True); time.sleep(60)"})
    assert answer.startswith("exit=124\nso far\n")
    assert "timed out" in answer
    assert time.monotonic() - begun < 30


def test_output_is_bounded(settings):
    answer = execute_python_tool(output_limit=1000, **settings).invoke({"code": "print('x' * 100_000)"})
    assert answer.startswith("exit=0\n")
    assert len(answer) < 1200
    assert "omitted" in answer


def test_a_cancelled_call_ends_its_sandbox(tool, settings):
    before = left(settings), directories()

    async def cancelled():
        call = asyncio.create_task(tool.ainvoke({"code": "import time; time.sleep(60)"}))
        while left(settings) == before[0]:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())
    assert (left(settings), directories()) == before


def test_what_goes_wrong_before_the_code_is_told_too(settings):
    tool = execute_python_tool(**settings)
    answer = tool.invoke({"code": "print(1)", "state": {"files": {"../x": "y"}}})
    assert answer.startswith("exit=1\n")
    assert "../x" in answer
    missing = execute_python_tool(python="/no/such/python", **settings).invoke({"code": "print(1)"})
    assert not missing.startswith("exit=0")
    with pytest.raises(podbay.ConfigError):
        podbay.Provider(no_such_setting=1)
    assert "no_such_setting" in execute_python_tool(no_such_setting=1).invoke({"code": "print(1)"})


def test_an_agents_virtual_files_are_seeded(settings, model):
    """The graph injects the state: neither the model's arguments nor the tool's schema have it."""
    tool = execute_python_tool(**settings)
    assert list(tool.tool_call_schema.model_json_schema()["properties"]) == ["code"]
    agent = create_deep_agent(model, tools=[tool], system_prompt="Analyse." + PROMPT_SUFFIX)
    files = {"/data.csv": {"content": "1\n2\n", "encoding": "utf-8"}}
    result = agent.invoke({**told("python print(sum(map(int, open('data.csv'))))"), "files": files}, on("one"))
    assert said(result) == "exit=0\n3\n"
    result = asyncio.run(agent.ainvoke({**told("python print(open('/app/data.csv').read())"), "files": files}))
    assert said(result) == "exit=0\n1\n2\n\n"


def test_it_works_in_a_plain_tool_node(settings):
    assert ToolNode([execute_python_tool(**settings)]).tools_by_name.keys() == {"execute_python"}
    renamed = execute_python_tool(name="sandbox", description="Runs.", **settings)
    assert (renamed.name, renamed.description) == ("sandbox", "Runs.")


def test_the_prompt_says_what_the_model_has_to_know():
    for word in ["execute_python", "/app/", "fresh sandbox", "exit="]:
        assert word in PROMPT_SUFFIX
