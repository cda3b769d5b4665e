"""Rules and audit log apply to every operation, sync and async."""

from __future__ import annotations

import pytest

from podbay.deepagents import PodbaySandbox


async def both(backend, name, *arguments, **named):
    """Returns the results of a method and of its async version."""
    return getattr(backend, name)(*arguments, **named), await getattr(backend, f"a{name}")(*arguments, **named)


async def test_prefixes():
    rules = {"allow_prefixes": ["/workspace/mine"], "deny_prefixes": ["/workspace/mine/secret"]}
    with PodbaySandbox(**rules) as backend:
        assert backend.execute("mkdir -p mine/secret other; touch mine/f mine/secret/f other/f minee").exit_code == 0
        for path in ("/workspace/other/f", "/workspace/mine/secret/f", "/workspace/minee", "/large_tool_results/f"):
            for result in await both(backend, "write", path, "x"):
                assert result.error.startswith(f"Failed to write file '{path}': ")
            for result in await both(backend, "edit", path, "a", "b"):
                assert result.error.startswith(f"Error editing file '{path}': ")
            for result in await both(backend, "delete", path):
                assert result.error.startswith(f"Error deleting file '{path}': ")
            for sent in await both(backend, "upload_files", [(path, b""), ("/workspace/mine/u", b"")]):
                assert [response.error for response in sent] == ["permission_denied", None]
        for result in await both(backend, "write", "/workspace/mine/f", "x"):
            assert result.error is None
        # A symbolic link doesn't bypass a rule.
        assert backend.execute("ln -s ../other mine/link").exit_code == 0
        for result in await both(backend, "write", "/workspace/mine/link/f", "x"):
            assert "/workspace/mine/link/f" in result.error
        for result in await both(
            backend, "execute_with_offload", "seq 9999", "/large_tool_results/f", max_inline_bytes=9
        ):
            assert not result.offloaded
            assert "couldn't be saved" in result.response.output


async def test_commands():
    with PodbaySandbox(deny_commands=["curl", "rm -rf"]) as backend:
        for command in ("curl example.org", "echo a; curl x", "rm -rf /workspace"):
            for result in await both(backend, "execute", command):
                assert result.exit_code == 126
                assert result.output.startswith("Error: ")
            for result in await both(
                backend, "execute_with_offload", command, "/large_tool_results/x", max_inline_bytes=9
            ):
                assert result.response.exit_code == 126
        for result in await both(backend, "execute", "echo ok"):
            assert result.output == "ok\n"


async def test_virtual_paths():
    with PodbaySandbox(virtual_mode=True, root_dir="/workspace/app") as backend:
        assert backend.execute("mkdir -p /workspace/app; echo secret > /workspace/secret").exit_code == 0
        for result in await both(backend, "write", "/a.txt", "needle\n"):
            assert (result.error, result.path) == (None, "/a.txt")
        assert backend.execute("cat /workspace/app/a.txt").output == "needle\n"
        for result in await both(backend, "ls", "/"):
            assert [entry["path"] for entry in result.entries] == ["/a.txt"]
        for result in await both(backend, "grep", "needle"):
            assert [match["path"] for match in result.matches] == ["/a.txt"]
        for result in await both(backend, "glob", "*"):
            assert [match["path"] for match in result.matches] == ["/a.txt"]
        assert backend.execute("ln -s ../secret /workspace/app/link").exit_code == 0
        for path in ("/../secret", "/link"):
            for result in await both(backend, "read", path):
                assert result.error.startswith(f"File '{path}': ")
                assert "secret\n" not in result.error
        # What Deep Agents offloads is stored below the root, where it can be read again.
        for result in await both(
            backend, "execute_with_offload", "seq 999", "/large_tool_results/x", max_inline_bytes=9
        ):
            assert result.offloaded
        assert backend.read("/large_tool_results/x", 998).file_data["content"] == "999"


async def test_record():
    entries = []
    with PodbaySandbox(
        audit_log=lambda op, target, meta: entries.append((op, target, meta)), deny_commands=["curl"]
    ) as b:
        for name, arguments in (
            ("write", ("/workspace/f", "12345")),
            ("read", ("/workspace/f",)),
            ("edit", ("/workspace/f", "1", "2")),
            ("ls", ("/workspace",)),
            ("glob", ("*", "/workspace")),
            ("grep", ("x", "/workspace")),
            ("upload_files", ([("/workspace/u", b"1")],)),
            ("download_files", (["/workspace/u"],)),
            ("execute", ("exit 3",)),
            ("execute", ("curl x",)),
            ("delete", ("/workspace/none",)),
        ):
            for result in await both(b, name, *arguments):
                assert result is not None
    # One line per call, even if it was refused.
    for op, target in (
        ("write", "/workspace/f"),
        ("read", "/workspace/f"),
        ("edit", "/workspace/f"),
        ("ls", "/workspace"),
    ):
        assert len([1 for entry in entries if entry[:2] == (op, target)]) == 2, op
    assert len([1 for entry in entries if "curl" in entry[1]]) == 2
    # Two for each call, and the sandbox's "create" and "destroy".
    assert len(entries) == 22 + 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what the callback raises is shown
async def test_what_cannot_be_recorded_is_not_done():
    def refuse(op, target, meta):
        if op not in {"create", "destroy"}:
            raise RuntimeError("the record is full")

    with PodbaySandbox(audit_log=refuse, strict_audit=True) as backend:
        for result in await both(backend, "write", "/workspace/f", "x"):
            assert "the record is full" in result.error
        for result in await both(backend, "execute", "touch /workspace/g"):
            assert "the record is full" in result.output
            assert result.exit_code != 0
    with PodbaySandbox(audit_log=refuse) as backend:
        for result in await both(backend, "write", "/workspace/f", "x"):
            assert result.error is None
