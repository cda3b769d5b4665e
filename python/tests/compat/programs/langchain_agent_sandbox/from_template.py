"""README sections "From template", "Developer Mode (Local/CI)", "Path Virtualization" and "AgentSandboxBackend"."""

import asyncio

from deepagents import create_deep_agent
from langchain_agent_sandbox import AgentSandboxBackend

# Backend manages client lifecycle automatically
with AgentSandboxBackend.from_template(TEMPLATE, namespace=NAMESPACE) as backend:
    agent = create_deep_agent(model=llm, backend=backend)
    result = agent.invoke({"messages": [("user", "run echo hello")]})
    assert result["messages"][-1].text.startswith("hello\n")

    assert backend.write("/src/a.txt", "one\ntwo\n").error is None
    assert backend.execute("cat /app/src/a.txt").output == "one\ntwo\n"
    assert "already exists" in backend.write("/src/a.txt", "other").error
    assert backend.read("/src/a.txt") == "1: one\n2: two"
    assert backend.read("/src/a.txt", 1, 1) == "2: two"
    assert backend.read("/src/missing").startswith("Error: ")
    assert backend.edit("/src/a.txt", "two", "three").occurrences == 1
    assert [entry["path"] for entry in backend.ls_info("/src")] == ["/src/a.txt"]
    assert backend.ls_info("/missing") == []
    assert [(match["path"], match["line"]) for match in backend.grep_raw("three")] == [("/src/a.txt", 2)]
    assert isinstance(backend.grep_raw("three", "/missing"), str)
    assert [entry["path"] for entry in backend.glob_info("**/*.txt")] == ["/src/a.txt"]
    assert backend.glob_info("*", "/missing") == []
    assert backend.upload_files({"b.bin": b"\xff"})[0].error is None
    assert backend.download_files(["/b.bin"])[0].content == b"\xff"
    assert backend.read("/../etc/passwd").startswith("Error: ")
    assert backend.execute("sleep 30", timeout=1).exit_code == 124
    claim = backend.id

# The sandbox's own paths instead.
with AgentSandboxBackend.from_template(TEMPLATE, namespace=NAMESPACE, allow_absolute_paths=True) as backend:
    assert backend.write("/tmp/absolute", "x").error is None
    assert backend.execute("pwd; cat /tmp/absolute").output == "/app\nx"


async def main():
    async with AgentSandboxBackend.from_template(TEMPLATE, namespace=NAMESPACE) as backend:
        assert (await backend.aexecute("echo hi")).output == "hi\n"
        assert (await backend.awrite("/a", "x")).error is None
        assert await backend.aread("/a") == "1: x"
        assert len(await backend.als_info("/")) >= 1
        assert len(await backend.agrep_raw("x", "/a")) == 1
        return backend.id


other = asyncio.run(main())
assert not {claim, other} & set(live())
