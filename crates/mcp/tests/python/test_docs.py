"""The snippets of docs/mcp.md start servers that answer."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from conftest import PODBAY
from mcp import Client, StdioServerParameters

PAGE = (Path(__file__).parents[4] / "docs/mcp.md").read_text()


def snippets():
    """The command line of every client."""
    for line in re.findall(r"^claude mcp add .*$", PAGE, re.MULTILINE):
        words = shlex.split(line)
        assert words[:4] == ["claude", "mcp", "add", "podbay"]
        yield pytest.param(words[words.index("--") + 1 :], id="Claude Code")
    for text in re.findall(r"^```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        settings = json.loads(text)
        [(key, servers)] = settings.items()
        assert key in {"mcpServers", "servers"}
        server = servers["podbay"]
        if "url" in server:
            assert server["url"].endswith("/mcp")
            continue
        yield pytest.param([server["command"], *server["args"]], id={"servers": "VS Code", "mcpServers": "Cursor"}[key])


@pytest.mark.anyio
@pytest.mark.parametrize("argv", list(snippets()))
async def test_a_snippet_starts_a_server(argv, environment):
    assert argv[0] == "podbay"
    path = f"{Path(PODBAY).parent}:{environment['PATH']}"
    server = StdioServerParameters(command=argv[0], args=argv[1:], env={**environment, "PATH": path})
    async with Client(server) as client:
        result = await client.call_tool("run", {"command": "echo hello"})
        assert result.content[0].text == "hello\n"


def test_every_client_has_a_snippet():
    assert [parameter.id for parameter in snippets()] == ["Claude Code", "Cursor", "VS Code"]


def test_every_tool_is_described():
    source = (Path(__file__).parents[2] / "src/tools/mod.rs").read_text()
    tools = re.findall(r'^        name: "(\w+)",$', source, re.MULTILINE)
    assert tools == re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
