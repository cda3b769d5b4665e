"""Whole agents with a scripted model."""

from __future__ import annotations

import re

import pytest
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StoreBackend
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from scripted import Scripted, call, calls


def asked(text):
    return {"messages": [{"role": "user", "content": text}]}


def answers(result):
    """Returns the tools' messages."""
    return [message.text for message in result["messages"] if isinstance(message, ToolMessage)]


async def run(agent, text, how, config=None):
    return agent.invoke(asked(text), config) if how == "sync" else await agent.ainvoke(asked(text), config)


BOTH = pytest.mark.parametrize("how", ["sync", "async"])


@BOTH
async def test_tools(backend, root, how):
    path = f"{root}/app/main.py"
    turns = [
        call("write_file", file_path=path, content="print('hello')\n# two\n"),
        call("read_file", file_path=path),
        call("edit_file", file_path=path, old_string="hello", new_string="bye"),
        call("ls", path=f"{root}/app"),
        call("glob", pattern="**/*.py", path=root),
        call("grep", pattern="bye", path=root, output_mode="content"),
        call("execute", command=f"cat {path}; exit 3"),
        call("delete", file_path=path),
        call("read_file", file_path=path),
        call("edit_file", file_path=path, old_string="a", new_string="b"),
        "done",
    ]
    agent = create_deep_agent(model=Scripted(script={"work": turns}), backend=backend)
    result = await run(agent, "work", how)
    said = answers(result)
    assert said[0] == f"Updated file {path}"
    assert said[1].endswith("print('hello')\n# two")
    assert said[2] == f"Successfully replaced 1 instance(s) of the string in '{path}'"
    assert said[3] == said[4] == f"['{path}']"
    assert path in said[5]
    assert "print('bye')" in said[5]
    assert said[6] == "print('bye')\n# two\n\n[Command failed with exit code 3]"
    assert said[7] == f"Deleted {path}"
    assert said[8] == f"Error: File '{path}': file_not_found"
    assert said[9] == f"Error: File '{path}' not found"
    assert result["messages"][-1].text == "done"


@BOTH
async def test_large_results_are_put_aside_and_read_back(backend, how):
    @tool
    def survey() -> str:
        """A tool with a long output."""
        return "".join(f"row {n}\n" for n in range(30_000))

    def read_back(line):
        def turn(messages):
            path = re.search(r"/large_tool_results/\S+", messages[-1].text).group().rstrip(".,;:)'`")
            return call("read_file", file_path=path, offset=line, limit=2)

        return turn

    turns = [
        call("execute", command="seq 100000"),
        read_back(99_998),
        call("survey"),
        read_back(29_998),
        "done",
    ]
    agent = create_deep_agent(model=Scripted(script={"work": turns}), backend=backend, tools=[survey])
    said = answers(await run(agent, "work", how))
    assert len(said[0]) < 10_000
    assert "[Command succeeded with exit code 0]" in said[0]
    assert said[1].endswith("99999\n100000")
    assert len(said[2]) < 10_000
    assert said[3].endswith("row 29998\nrow 29999")


@BOTH
async def test_subagents_in_parallel(backend, root, how):
    names = ["ada", "bob", "eve"]
    script = {
        "work": [
            calls(*(("task", {"description": f"be {n}", "subagent_type": "general-purpose"}) for n in names)),
            call("execute", command=f"cat {root}/*"),
            "done",
        ],
    }
    for name in names:
        script[f"be {name}"] = [
            call("write_file", file_path=f"{root}/{name}", content=f"{name} was here\n"),
            call("execute", command=f"sleep 0.2; wc -c < {root}/{name}"),
            f"{name} is done",
        ]
    agent = create_deep_agent(model=Scripted(script=script), backend=backend)
    said = answers(await run(agent, "work", how))
    assert sorted(said[:3]) == [f"{name} is done" for name in names]
    assert said[3].startswith("ada was here\nbob was here\neve was here\n")


@BOTH
async def test_routes(backend, root, how):
    """The sandbox is the default of a composite: it runs commands and has most files; some paths are elsewhere."""
    store = InMemoryStore()
    routed = CompositeBackend(
        default=backend, routes={"/memories/": StoreBackend(store=store, namespace=lambda _: ("notes",))}
    )
    turns = [
        call("write_file", file_path="/memories/note.txt", content="needle in the store"),
        call("write_file", file_path=f"{root}/note.txt", content="needle in the sandbox"),
        call("ls", path="/"),
        call("grep", pattern="needle in the", output_mode="files_with_matches"),
        call("glob", pattern="note.txt", path="/"),
        call("execute", command=f"cat {root}/note.txt; ls /memories"),
        call("execute", command="seq 100000"),
        call("read_file", file_path="/memories/note.txt"),
        "done",
    ]
    agent = create_deep_agent(model=Scripted(script={"work": turns}), backend=routed, store=store)
    said = answers(await run(agent, "work", how))
    assert "/memories/" in said[2]
    assert "/workspace" in said[2]
    for found in said[3:5]:
        assert "/memories/note.txt" in found
        assert f"{root}/note.txt" in found
    assert said[5].startswith("needle in the sandbox")
    assert "[Command failed" in said[5]
    assert "/large_tool_results/" in said[6]
    assert said[7].endswith("needle in the store")


@BOTH
async def test_memory_and_skills(backend, root, how):
    skill = "---\nname: brewing\ndescription: how to brew tea\n---\n# Brewing\nBoil water.\n"
    files = {"AGENTS.md": "Always answer in verse.", "skills/brewing/SKILL.md": skill, "skills/notes.txt": "no skill"}
    sent = backend.upload_files([(f"{root}/{name}", text.encode()) for name, text in files.items()])
    assert all(response.error is None for response in sent)
    model = Scripted(script={"work": [call("read_file", file_path=f"{root}/skills/brewing/SKILL.md"), "done"]})
    agent = create_deep_agent(
        model=model, backend=backend, memory=[f"{root}/AGENTS.md", f"{root}/none.md"], skills=[f"{root}/skills/"]
    )
    said = answers(await run(agent, "work", how))
    told = model.seen[0][0].text
    assert "Always answer in verse." in told
    assert "how to brew tea" in told
    assert "Boil water." in said[0]


@BOTH
async def test_old_turns_are_summed_up_and_kept(backend, root, how):
    """The history is offloaded to the sandbox, and grows by edits of the whole file."""
    script = {f"question {n} about {root}": [f"answer {n}: " + "blah " * 3000] for n in range(12)}
    model = Scripted(script=script, otherwise="SUMMARY", profile={"max_input_tokens": 12_000})
    agent = create_deep_agent(model=model, backend=backend, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": root}}
    for question in script:
        await run(agent, question, how, config)
    kept = backend.grep(f"question 0 about {root}", "/conversation_history").matches
    assert len(kept) == 1, kept
    history = backend.download_files([kept[0]["path"]])[0].content.decode()
    assert f"question 3 about {root}" in history
    assert "answer 3" in history
    assert history.count("## ") >= 2
    assert any("SUMMARY" in message.text for message in model.seen[-1])
    assert len(model.seen[-1]) < 12


async def test_a_sandbox_that_fails_ends_no_run(root):
    """Each tool reports the error, and the run continues."""
    from podbay.deepagents import PodbaySandbox

    turns = [
        calls(
            ("ls", {"path": "/"}),
            ("read_file", {"file_path": "/a"}),
            ("write_file", {"file_path": "/b", "content": "x"}),
            ("edit_file", {"file_path": "/c", "old_string": "x", "new_string": "y"}),
            ("delete", {"file_path": "/d"}),
            ("glob", {"pattern": "*"}),
            ("grep", {"pattern": "x"}),
            ("execute", {"command": "true"}),
        ),
        "I couldn't",
    ]
    backend = PodbaySandbox(mode="raw", kubeconfig="/nowhere/at/all")
    agent = create_deep_agent(model=Scripted(script={"work": turns}), backend=backend)
    for how in ("sync", "async"):
        result = await run(agent, "work", how)
        assert len(answers(result)) == 8
        assert all("/nowhere/at/all" in said for said in answers(result)), answers(result)
        assert result["messages"][-1].text == "I couldn't"
