"""Failures never raise: they are reported in the operation's result."""

from __future__ import annotations

import asyncio
import os

import pytest

import podbay
from podbay.deepagents import PodbaySandbox

OPERATIONS = [
    ("ls", ("/workspace",)),
    ("read", ("/workspace/f",)),
    ("write", ("/workspace/f", "x")),
    ("edit", ("/workspace/f", "a", "b")),
    ("delete", ("/workspace/f",)),
    ("glob", ("*", "/workspace")),
    ("grep", ("x", "/workspace")),
    ("grep", ("x",)),
    ("glob", ("*",)),
    ("upload_files", ([("/a", b""), ("/b", b"")],)),
    ("download_files", (["/a", "/b"],)),
    ("execute", ("true",)),
]
PREFIXES = {
    "ls": "Path '/workspace': ",
    "read": "File '/workspace/f': ",
    "write": "Failed to write file '/workspace/f': ",
    "edit": "Error editing file '/workspace/f': ",
    "delete": "Error deleting file '/workspace/f': ",
    "glob": "Path '",
    "grep": "Error: grep in '",
}


async def everything(backend, sentence):
    """Calls every operation, sync and async, concurrently, and expects each to report the reason."""
    await asyncio.gather(*(check(backend, sentence, call) for call in OPERATIONS))


async def check(backend, sentence, call):
    name, arguments = call
    for result in await asyncio.gather(
        asyncio.to_thread(getattr(backend, name), *arguments), getattr(backend, f"a{name}")(*arguments)
    ):
        match name:
            case "upload_files" | "download_files":
                assert [response.path for response in result] == ["/a", "/b"]
                assert all(sentence in response.error for response in result)
                assert all(getattr(response, "content", None) is None for response in result)
            case "execute":
                assert result.output.startswith("Error: ")
                assert sentence in result.output
                assert result.exit_code != 0
            case _:
                assert result.error.startswith(PREFIXES[name]), result
                assert sentence in result.error, result


async def captured(backend, sentence):
    """The same for the two methods that offload large outputs."""
    arguments = {"command": "true", "capture_path": "/large_tool_results/x", "max_inline_bytes": 10}
    for result in await asyncio.gather(
        asyncio.to_thread(backend.execute_with_offload, **arguments), backend.aexecute_with_offload(**arguments)
    ):
        assert not result.offloaded
        assert sentence in result.response.output
        assert result.response.exit_code != 0


async def test_a_sandbox_that_cannot_be_made(tmp_path):
    backend = PodbaySandbox(mode="raw", kubeconfig=str(tmp_path / "none"))
    await everything(backend, str(tmp_path / "none"))
    await captured(backend, str(tmp_path / "none"))


async def test_a_sandbox_that_is_gone():
    backend = PodbaySandbox()
    assert backend.write("/workspace/f", "x").error is None
    assert podbay.Provider().delete(backend.id)
    await asyncio.gather(everything(backend, backend.id), captured(backend, backend.id))


async def test_a_sandbox_that_was_closed():
    with PodbaySandbox() as backend:
        assert backend.execute("true").exit_code == 0
    await everything(backend, "was closed")


async def test_no_conversation():
    await everything(PodbaySandbox(per_thread=True), "config={'configurable': {'thread_id': '…'}}")


def test_after_a_fork():
    """Connections don't survive a fork: the child gets an error instead of hanging forever."""
    with PodbaySandbox() as backend:
        assert backend.write("/workspace/f", "x").error is None
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, (backend.read("/workspace/f").error or "read").encode()[:4000])
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        assert os.waitpid(child, 0)[1] == 0
        assert "fork" in said
        assert backend.read("/workspace/f").error is None


def test_wrong_settings_are_told_at_once():
    with pytest.raises(ValueError, match="imagee"):
        PodbaySandbox(mode="raw", imagee="x")
    with pytest.raises(ValueError, match="image"):
        PodbaySandbox(sandbox=podbay.Sandbox(), image="x")
    with pytest.raises(ValueError, match="per_thread"):
        PodbaySandbox(per_thread=True, id="x")


def test_making_one_does_nothing(monkeypatch, tmp_path):
    """dcode and `langgraph dev` create backends where nothing may block, and an import must not create a pod."""
    backend = PodbaySandbox(mode="raw", kubeconfig=str(tmp_path / "none"), image="python:3.12-slim", namespace="agents")
    assert backend.id == backend.id
    assert {backend: 1}[backend] == 1
    assert backend(object()) is backend
    assert backend.id in repr(backend)
    known = {key: value for key, _, value in podbay.effective_settings("raw", image="i", namespace="n")}
    assert (known["raw.image"], known["cluster.namespace"]) == ("i", "n")
