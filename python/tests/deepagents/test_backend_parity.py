"""Every method has its own async version, and both return the same."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pytest
from deepagents.backends.protocol import (
    SandboxBackendProtocol,
    _method_accepts_max_count,
    _supports_delete,
    execute_accepts_timeout,
)
from deepagents.backends.sandbox import BaseSandbox

from podbay.deepagents import PodbaySandbox

PAIRS = [
    "ls", "read", "write", "edit", "delete", "glob", "grep", "upload_files", "download_files", "execute",
    "execute_with_offload",
]  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_signatures(name):
    ours, theirs = getattr(PodbaySandbox, name), getattr(BaseSandbox, name)
    ours_async, their_async = getattr(PodbaySandbox, f"a{name}"), getattr(BaseSandbox, f"a{name}")
    assert name in vars(PodbaySandbox)
    assert f"a{name}" in vars(PodbaySandbox)
    assert inspect.iscoroutinefunction(ours_async)
    shape = [(p.name, p.kind, p.default) for p in inspect.signature(theirs).parameters.values()]
    for method in (ours, ours_async, their_async):
        assert [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values()] == shape


def test_what_the_sdk_asks_a_class():
    assert issubclass(PodbaySandbox, SandboxBackendProtocol)
    assert execute_accepts_timeout(PodbaySandbox)
    assert _method_accepts_max_count(PodbaySandbox, "grep")
    assert _method_accepts_max_count(PodbaySandbox, "agrep")
    assert _supports_delete(PodbaySandbox())
    assert PodbaySandbox.enable_capture_offload


CALLS = [
    ("ls", ("{root}",)),
    ("ls", ("{root}/none",)),
    ("ls", ("{root}/a.txt",)),
    ("read", ("{root}/a.txt",)),
    ("read", ("{root}/a.txt", 1, 1)),
    ("read", ("{root}/a.txt", 0, 0)),
    ("read", ("{root}/a.txt", 9)),
    ("read", ("{root}/none",)),
    ("read", ("{root}/empty",)),
    ("read", ("{root}/image.png",)),
    ("read", ("{root}/big.png",)),
    ("read", ("{root}/wide",)),
    ("read", ("{root}",)),
    ("write", ("{root}/w", "text")),
    ("write", ("{root}", "text")),
    ("write", ("{root}/a.txt/x", "text")),
    ("edit", ("{root}/a.txt", "two", "two")),
    ("edit", ("{root}/a.txt", "", "two")),
    ("edit", ("{root}/a.txt", "absent", "two")),
    ("edit", ("{root}/a.txt", "t", "t")),
    ("edit", ("{root}/a.txt", "t", "t", True)),
    ("edit", ("{root}/none", "t", "t")),
    ("edit", ("{root}/image.png", "t", "t")),
    ("delete", ("{root}/none",)),
    ("glob", ("*.txt", "{root}")),
    ("glob", ("*.txt", "{root}/none")),
    ("glob", ("../*", "{root}")),
    ("grep", ("two", "{root}")),
    ("grep", ("two", "{root}", "*.txt")),
    ("grep", ("two", "{root}", "../*")),
    ("grep", ("two", "{root}/none")),
    ("upload_files", ([("{root}/u", b"x"), ("rel", b""), ("{root}", b"")],)),
    ("download_files", (["{root}/a.txt", "rel", "{root}", "{root}/none"],)),
    ("execute", ("echo out; echo err >&2; exit 3",)),
    ("execute", ("kill -9 $$",)),
]


def filled(value, root):
    if isinstance(value, str):
        return value.format(root=root)
    if isinstance(value, list | tuple):
        return type(value)(filled(item, root) for item in value)
    return value


@pytest.fixture(scope="module")
def tree(local):
    root = "/workspace/parity"
    files = [
        (f"{root}/a.txt", b"one\ntwo\nthree"),
        (f"{root}/sub/b.txt", b"two"),
        (f"{root}/empty", b""),
        (f"{root}/image.png", b"\x89PNG\xff"),
        (f"{root}/big.png", b"x" * 600_000),
        (f"{root}/wide", b"x" * 600_000),
    ]
    assert all(sent.error is None for sent in local.upload_files(files))
    return root


@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
async def test_results(local, tree, name, arguments):
    arguments = filled(arguments, tree)
    # Write once before, so that both calls find the file.
    getattr(local, name)(*arguments)
    ours, ours_async = getattr(local, name)(*arguments), await getattr(local, f"a{name}")(*arguments)
    assert without_times(ours) == without_times(ours_async)


def without_times(result):
    """The writes in between change only the directory's timestamp."""
    for entry in (getattr(result, "entries", None) or []) + (getattr(result, "matches", None) or []):
        entry.pop("modified_at", None)
    return result


async def test_deleting_and_keywords(local, tree):
    for suffix in ("one", "two"):
        assert local.write(f"{tree}/del/{suffix}", "x").error is None
    assert local.delete(file_path=f"{tree}/del/one").path == f"{tree}/del/one"
    assert (await local.adelete(file_path=f"{tree}/del/two")).path == f"{tree}/del/two"
    assert local.grep("two", tree, None, max_count=1).truncated
    assert (await local.agrep("two", tree, None, max_count=1)).truncated
    assert (await local.aread(file_path=f"{tree}/a.txt", offset=1, limit=1)).file_data["content"] == "two"


async def test_async_methods_use_no_thread_and_no_script(tree, monkeypatch):
    """The SDK's async methods fall back to threads or shell scripts if a class doesn't override them."""

    class Watched(PodbaySandbox):
        def execute(self, command, *, timeout=None):
            raise AssertionError("a file operation ran a command")

        async def aexecute(self, command, *, timeout=None):
            raise AssertionError("a file operation ran a command")

    async def refused(*arguments, **named):
        raise AssertionError("an async method used a thread")

    monkeypatch.setattr(asyncio, "to_thread", refused)
    threads = threading.active_count()
    async with Watched() as backend:
        assert (await backend.awrite(f"{tree}/a.txt", "two\n")).error is None
        for name, arguments in CALLS:
            if name != "execute":
                await getattr(backend, f"a{name}")(*filled(arguments, tree))
                getattr(backend, name)(*filled(arguments, tree))
        kept = await backend.aexecute_with_offload("seq 1000", "/large_tool_results/x", max_inline_bytes=10)
        assert kept.offloaded
        assert (await backend.adelete(f"{tree}/a.txt")).error is None
    assert threading.active_count() == threads
