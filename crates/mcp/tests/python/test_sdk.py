"""The official Python SDK as a client, over both transports."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time

import anyio
import httpx2
import pytest
from conftest import PODBAY, listening, running, token_file, wait_until
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

pytestmark = pytest.mark.anyio

TOKEN, OTHER = "0123456789abcdef0123", "fedcba9876543210fedc"
META = "podbay.dev/result"


def parameters(environment, *arguments):
    return StdioServerParameters(command=PODBAY, args=["mcp", *arguments], env=environment)


@pytest.fixture(params=["stdio", "stdio, initialize", "http", "http, shared sandbox"])
def connect(request, environment):
    """Opens clients of one server."""
    mode = "legacy" if "initialize" in request.param else "auto"
    if request.param.startswith("stdio"):
        yield lambda: Client(parameters(environment), mode=mode)
        return
    shared = ["--sandbox", "shared"] if "shared" in request.param else []
    with listening(environment, *shared) as (_, url):
        yield lambda: Client(url, mode=mode)
    if shared:
        subprocess.run([PODBAY, "delete", "shared"], env=environment, check=True, capture_output=True)


def text(result) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text(result)
    return text(result)


async def test_every_tool(connect):
    async with connect() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == [
            "run", "read", "write", "edit", "ls", "glob", "grep", "upload", "process_list", "process_output", "process_kill",
        ]  # fmt: skip
        reading = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
        assert reading == {"read", "ls", "glob", "grep", "process_list", "process_output"}

        assert await call(client, "write", path="notes/a.txt", content="one\ntwo\n") == "created /workspace/notes/a.txt (8 bytes)"
        assert await call(client, "read", path="notes/a.txt") == "one\ntwo"
        assert "replaced once" in await call(client, "edit", path="notes/a.txt", old_string="two", new_string="three")
        assert await call(client, "run", command="cat notes/a.txt; pwd") == "one\nthree\n/workspace\n\n[exit code 0]"
        assert "notes/" in await call(client, "ls")
        assert "a.txt" in await call(client, "glob", pattern="**/*.txt")
        assert "a.txt:2:three" in await call(client, "grep", pattern="three")
        png = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
        await call(client, "upload", path="dot.png", content_base64=base64.b64encode(png).decode())
        image = (await client.call_tool("read", {"path": "dot.png"})).content[0]
        assert (image.type, image.mime_type, base64.b64decode(image.data)) == ("image", "image/png", png)

        started = await client.call_tool("run", {"command": "echo begun; sleep 60", "background": True})
        exec_id = started.meta[META]["id"]
        assert exec_id in await call(client, "process_list")
        output = await call(client, "process_output", id=exec_id, wait_seconds=20)
        assert output.startswith("begun\n"), output
        assert "running" in output
        assert "sent to" in await call(client, "process_kill", id=exec_id)
        assert "SIGKILL" in await call(client, "process_output", id=exec_id, offset=6, wait_seconds=20)


async def test_what_is_long_is_a_resource(connect):
    async with connect() as client:
        result = await client.call_tool("run", {"command": "seq 1 100000"})
        link = next(block for block in result.content if block.type == "resource_link")
        assert "bytes left out here" in text(result)
        assert len(text(result)) < 70_000
        whole, uri = "", link.uri
        while True:
            read = await client.read_resource(uri)
            whole += read.contents[0].text
            following = read.contents[0].meta[META]["next_offset"]
            if following is None:
                break
            uri = f"{link.uri}?offset={following}"
        assert whole == "".join(f"{number}\n" for number in range(1, 100001))
        assert str(link.uri) in [str(resource.uri) for resource in (await client.list_resources()).resources]

        await call(client, "write", path="a b.json", content="{}")
        file = (await client.read_resource("podbay://file/workspace/a%20b.json")).contents[0]
        assert (file.text, file.mime_type) == ("{}", "application/json")
        templates = (await client.list_resource_templates()).resource_templates
        assert {template.name for template in templates} == {"file", "output"}
        for uri in ["podbay://file/no/such", "podbay://exec/none/output", "file:///etc/passwd", "podbay://file/%zz"]:
            with pytest.raises(MCPError):
                await client.read_resource(uri)


async def test_progress_and_cancellation(connect):
    async with connect() as client:
        heard = []

        async def told(progress, total, message):
            heard.append((progress, message))

        script = "for i in 1 2 3; do echo step $i; sleep 0.7; done"
        result = await client.call_tool("run", {"command": script}, progress_callback=told)
        assert text(result) == "step 1\nstep 2\nstep 3\n\n[exit code 0]"
        assert [progress for progress, _ in heard] == sorted({progress for progress, _ in heard})
        assert any("step" in message for _, message in heard), heard

        for callback in (None, told):
            with anyio.move_on_after(1.5):
                await client.call_tool("run", {"command": "echo $$ > pid; sleep 300"}, progress_callback=callback)
            for _ in range(100):
                if await call(client, "process_list") == "[nothing is running]":
                    break
                await anyio.sleep(0.1)
            assert await call(client, "process_list") == "[nothing is running]"


async def test_errors_say_what_to_do(connect):
    async with connect() as client:
        for tool, arguments, expected in [
            ("read", {"path": "none"}, "Call ls or glob"),
            ("read", {"path": "/"}, "Call ls"),
            ("edit", {"path": "none", "old_string": "a", "new_string": "b"}, "Call ls or glob"),
            ("process_output", {"id": "none"}, "process_list"),
            ("process_kill", {"id": "../.."}, "letters, digits"),
            ("run", {}, "missing field `command`"),
            ("run", {"command": "true", "timeout_seconds": -1}, "positive"),
            ("run", {"command": "true", "timeout_seconds": "soon"}, "timeout_seconds"),
            ("run", {"command": "true", "scope": {}}, "unknown field `scope`"),
            ("read", {"path": "x", "max_bytes": 1}, "unknown field `max_bytes`"),
            ("upload", {"path": "x", "content_base64": "?"}, "base64"),
        ]:
            # Straight to the server: the client's own checks aren't ours.
            result = await client.call_tool(tool, arguments)
            assert result.is_error, (tool, arguments)
            assert expected in text(result), text(result)
        with pytest.raises(MCPError, match="there is no tool"):
            await client.call_tool("format_disk", {})
        result = await client.call_tool("run", {"command": "exit 3"})
        assert not result.is_error
        assert result.meta[META]["exit_code"] == 3
        result = await client.call_tool("run", {"command": "sleep 60", "timeout_seconds": 0.5})
        assert "timed out" in text(result)
        assert result.meta[META]["timed_out"]


async def test_sessions_are_apart(environment):
    with listening(environment) as (_, url):
        before = running(environment)
        async with Client(url) as one, Client(url) as two:
            # Nothing is created before it is needed.
            assert await call(one, "process_list") == "[nothing is running]"
            assert running(environment) == before
            await call(one, "write", path="mine", content="1")
            assert (await two.call_tool("read", {"path": "mine"})).is_error
            assert len(running(environment)) == len(before) + 2
        wait_until(lambda: running(environment) == before, "sandboxes are left")


async def test_many_calls_at_once(connect):
    async with connect() as client:
        done = []

        async def one(number):
            done.append(await call(client, "run", command=f"sleep 0.1; echo {number}"))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(one, number)
        assert sorted(done) == sorted(f"{number}\n\n[exit code 0]" for number in range(20))


async def test_a_named_sandbox_stays(environment):
    async with Client(parameters(environment, "--sandbox", "kept")) as client:
        await call(client, "write", path="x", content="still here")
    async with Client(parameters(environment, "--sandbox", "kept")) as client:
        assert await call(client, "read", path="x") == "still here"
    subprocess.run([PODBAY, "delete", "kept"], env=environment, check=True, capture_output=True)


async def test_rules_and_audit_hold(environment, tmp_path):
    audit = tmp_path / "audit.jsonl"
    settings = ["--set", "policy.deny_commands=curl", "--set", f"audit.file={audit}"]
    async with Client(parameters(environment, *settings)) as client:
        result = await client.call_tool("run", {"command": "curl example.com"})
        assert result.is_error
        assert "The user's rules forbid this" in text(result)
        await call(client, "run", command="echo recorded")
    assert "echo recorded" in audit.read_text()
    assert "curl example.com" in audit.read_text()


async def test_settings_bound_what_tools_ask_for(environment):
    async with Client(parameters(environment, "--timeout", "1s", "--max-output", "1KiB")) as client:
        begun = time.monotonic()
        result = await client.call_tool("run", {"command": "sleep 60", "timeout_seconds": 60})
        assert "timed out after 1 s" in text(result)
        assert time.monotonic() - begun < 20
        result = await client.call_tool("run", {"command": "seq 1 10000", "max_output_bytes": 10**9})
        assert len(text(result)) < 1500


async def test_tokens(environment, tmp_path):
    tokens = token_file(tmp_path, TOKEN, OTHER)

    def bearer(token):
        return httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"})

    with listening(environment, "--token-file", tokens) as (_, url):
        async with bearer(TOKEN) as http, Client(streamable_http_client(url, http_client=http)) as client:
            assert await call(client, "run", command="echo in") == "in\n\n[exit code 0]"
        for wrong in ["", "x" * 20]:
            with pytest.raises(BaseException):  # noqa: PT011, B017 - a group of what the transport raises
                async with bearer(wrong) as http, Client(streamable_http_client(url, http_client=http)):
                    pass


@pytest.mark.parametrize("over", ["stdio", "http"])
def test_a_client_that_disappears_leaves_nothing(environment, over, tmp_path):
    """A client that was killed can't say goodbye."""
    program = tmp_path / "client.py"
    ready = tmp_path / "ready"
    program.write_text(
        "import anyio, os, sys\n"
        "from mcp import Client, StdioServerParameters\n"
        "async def main():\n"
        f"    server = sys.argv[1] if len(sys.argv) > 1 else StdioServerParameters(command={PODBAY!r}, args=['mcp'], env=dict(os.environ))\n"
        "    async with Client(server) as client:\n"
        "        await client.call_tool('run', {'command': 'sleep 600', 'background': True})\n"
        f"        open({str(ready)!r}, 'w').close()\n"
        "        await anyio.sleep(600)\n"
        "anyio.run(main)\n"
    )

    def die(*arguments):
        before = running(environment)
        with subprocess.Popen([sys.executable, program, *arguments], env=environment) as client:
            wait_until(ready.exists, "the client isn't ready", 60)
            assert len(running(environment)) == len(before) + 1
            os.kill(client.pid, signal.SIGKILL)
        wait_until(lambda: running(environment) == before, "a sandbox is left")

    if over == "stdio":
        die()
    else:
        with listening(environment, "--idle-ttl", "2s") as (_, url):
            die(url)


async def test_an_idle_sandbox_is_replaced(environment):
    """A session outlives its sandbox, and says so."""
    async with Client(parameters(environment, "--idle-ttl", "1s")) as client:
        await call(client, "write", path="x", content="1")
        with anyio.fail_after(60):
            while running(environment):
                await anyio.sleep(0.2)
        result = await client.call_tool("read", {"path": "x"})
        assert result.is_error
        assert "starts a new, empty one" in text(result)
        assert await call(client, "run", command="ls") == "[exit code 0]"
