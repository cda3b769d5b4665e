"""Rules and audit log apply to every operation, sync and async."""

import asyncio
import hashlib
import json
import logging
import shutil
import tempfile
import time

import pytest

import podbay


def test_prefixes_hold_for_everything_that_changes():
    with podbay.Sandbox(allow_prefixes=["/workspace"], deny_prefixes=["/workspace/secret"]) as sandbox:
        sandbox.write("ok", "1")
        denied = [
            lambda: sandbox.write("/tmp/x", ""),
            lambda: sandbox.write("secret/x", ""),
            lambda: sandbox.mkdir("/tmp/x"),
            lambda: sandbox.move("ok", "/tmp/x"),
            lambda: sandbox.delete("/tmp"),
            lambda: sandbox.write("/workspace/../tmp/x", ""),
        ]
        for call in denied:
            with pytest.raises(podbay.PolicyDenied) as raised:
                call()
            assert raised.value.code == "policy_denied"
            assert isinstance(raised.value, PermissionError)
        results = sandbox.upload([("/tmp/x", b""), ("/workspace/y", b"")])
        assert [result.error is None for result in results] == [False, True]
        assert sandbox.ls("/tmp").entries == []


def test_trees_obey_too(tmp_path):
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / "f").write_text("x")
    with podbay.Sandbox(allow_prefixes=["/workspace"], deny_prefixes=["/workspace/secret"]) as sandbox:
        for refused in (
            sandbox.upload_tree(tmp_path / "up", "/tmp/tree"),
            asyncio.run(upload_tree(sandbox, tmp_path / "up", "secret/tree")),
        ):
            ((name, error),) = refused.failed
            assert (name, refused.files) == ("f", 0)
            assert isinstance(error, podbay.PolicyDenied)
        assert sandbox.upload_tree(tmp_path / "up", "tree").files == 1
    with podbay.Sandbox(deny_prefixes=["/workspace/secret"], rules_for_reads=True) as sandbox:
        sandbox.run("mkdir secret open; echo 1 > secret/f; echo 2 > open/f")
        fetched = sandbox.download_tree("/workspace", tmp_path / "down")
        assert fetched.files == 1
        assert not (tmp_path / "down" / "secret").exists()
        assert [result.content for result in sandbox.download(["secret/f", "open/f"])] == [None, b"2\n"]


async def upload_tree(sandbox, local, path):
    return await sandbox.aupload_tree(local, path)


def test_commands_are_denied_in_every_way():
    with podbay.Sandbox(deny_commands=["rm -rf", "curl"]) as sandbox:

        async def main(operation):
            await operation()

        for call in (
            lambda: sandbox.run("rm -fr /"),
            lambda: sandbox.run(["curl", "example.com"]),
            lambda: sandbox.run("cat | curl -d @- x", stdin="secret"),
            lambda: sandbox.start("true; rm -r -f x"),
            lambda: sandbox.stream("curl x"),
            lambda: asyncio.run(main(lambda: sandbox.arun("curl x"))),
            lambda: asyncio.run(main(lambda: sandbox.astream("curl x"))),
        ):
            with pytest.raises(podbay.PolicyDenied, match="wasn't run"):
                call()
        assert sandbox.commands() == []
        assert sandbox.run("echo rm").ok


def test_virtual_mode_shows_only_the_root():
    with podbay.Sandbox(virtual_mode=True, root_dir="/workspace/root") as sandbox:
        sandbox.run("mkdir -p /workspace/root; ln -s /etc/passwd /workspace/root/link; echo out > /workspace/outside")
        assert sandbox.write("/a/b", "x").path == "/a/b"
        assert [entry.path for entry in sandbox.ls("/")] == ["/a", "/link"]
        assert [match.path for match in sandbox.glob("b")] == ["/a/b"]
        for path in ("/link", "/../outside"):
            with pytest.raises(podbay.OperationError) as raised:
                sandbox.read(path)
            assert raised.value.code in {"escapes_root", "not_found"}
        assert sandbox.run("cat /workspace/root/a/b").output == "x"
    with podbay.Sandbox(virtual_mode=True) as sandbox:
        sandbox.write("/f", "x")
        assert sandbox.run("cat /workspace/f").output == "x", "the workspace is the root unless another is named"


def test_a_callback_is_told_of_everything():
    told = []
    with podbay.Sandbox(
        audit_log=lambda op, target, meta: told.append((op, target, meta)), deny_commands=["curl"]
    ) as sandbox:
        sandbox.write("f", "123")
        sandbox.run("exit 3")
        with pytest.raises(podbay.PolicyDenied):
            sandbox.run("curl x")
        with pytest.raises(podbay.NotFound):
            sandbox.read("nothing")

        async def main():
            await asyncio.gather(*[sandbox.aread("f") for _ in range(20)])

        asyncio.run(main())
        name = sandbox.id
    assert [(op, target, meta["decision"]) for op, target, meta in (told.pop(0), told.pop())] == [
        ("create", name, "allowed"),
        ("destroy", name, "allowed"),
    ]
    assert [(op, target, meta["decision"]) for op, target, meta in told[:4]] == [
        ("write", "f", "allowed"),
        ("exec", "exit 3", "allowed"),
        ("exec", "curl x", "denied"),
        ("read", "nothing", "failed"),
    ]
    assert told[0][2]["bytes"] == 3
    assert told[0][2]["sandbox"] == name
    assert told[1][2]["exit_code"] == 3
    assert told[3][2]["error"] == "not_found"
    assert (told[2][2]["error"], told[2][2]["denied_by"]) == ("policy_denied", "client")
    assert "curl" in told[2][2]["reason"]
    assert told[3][2]["denied_by"] is told[3][2]["reason"] is None
    assert len(told) == 24


def test_a_callback_is_told_what_a_cleanup_deleted(monkeypatch, request):
    # A home of its own: other tests' sandboxes may be idle too.
    home = tempfile.mkdtemp(prefix="pb-", dir="/tmp")
    request.addfinalizer(lambda: shutil.rmtree(home, ignore_errors=True))
    monkeypatch.setenv("PODBAY_HOME", home)
    told = []
    provider = podbay.Provider(audit_log=lambda op, _, meta: told.append((op, meta)))
    provider.get_or_create("cleaned-up").run("true")
    time.sleep(0.8)
    provider.cleanup(max_idle="400ms")
    op, meta = told[-1]
    assert (op, meta["sandbox"]) == ("cleanup", "")
    assert meta["effect"] == {"changed": True, "deleted": ["cleaned-up"]}


def test_a_callback_is_told_the_whole_command():
    told = []
    with podbay.Sandbox(audit_log=lambda op, target, meta: told.append((op, meta))) as sandbox:
        sandbox.run(["printf", "a b", "x" * 10_000], env={"TOKEN": "s3cr3t"}, stdin="abc")
        with sandbox.stream("cat", stdin=True) as stream:
            stream.write("typed")
    (run, stream), inputs = [[meta for op, meta in told if op == wanted] for wanted in ("exec", "exec.input")]
    assert run["details"]["argv"] == ["printf", "a b", "x" * 10_000]
    value = {"name": "TOKEN", "bytes": 6, "sha256": hashlib.sha256(b"s3cr3t").hexdigest()}
    assert run["details"]["env"] == [value]
    assert run["details"]["input"]["bytes"] == 3
    assert inputs[0]["details"]["input"]["bytes"] == len("typed")
    assert inputs[0]["details"]["exec_id"]
    assert len({meta["operation"] for _, meta in told}) == len(told)
    assert "s3cr3t" not in repr(told)


def test_a_callback_may_use_the_sandbox():
    sizes = []

    def log(op, target, meta):
        if op == "write":
            sizes.append(sandbox.stat(target).size)

    with podbay.Sandbox(audit_log=log) as sandbox:
        sandbox.write("f", "12345")

        async def main():
            await sandbox.awrite("f", "1234567")

        asyncio.run(main())
    assert sizes == [5, 7]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_cannot_be_recorded_is_not_done_when_strict():
    def broken(op, target, meta):
        raise OSError("the disk is full")

    with podbay.Sandbox(audit_log=broken, strict_audit=True) as sandbox:
        with pytest.raises(podbay.PolicyDenied, match="disk is full"):
            sandbox.write("f", "x")
        with pytest.raises(podbay.PolicyDenied):
            asyncio.run(write(sandbox))
        with podbay.Sandbox(id=sandbox.id) as plain:
            assert plain.glob("*").matches == []
    with podbay.Sandbox(audit_log=broken) as sandbox:
        assert sandbox.write("f", "x").size == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_function_is_told_in_addition_to_the_file(tmp_path, monkeypatch):
    """It switched off the log that the settings name, and alone decided whether the audit is strict."""

    def refuse(op, target, meta):
        if op == "write":
            raise OSError("not on my watch")

    log = tmp_path / "audit.jsonl"
    monkeypatch.setenv("PODBAY_AUDIT_FILE", str(log))
    monkeypatch.setenv("PODBAY_AUDIT_STRICT", "true")
    with podbay.Sandbox(audit_log=refuse) as sandbox:
        sandbox.run("true")
        with pytest.raises(podbay.PolicyDenied, match="not on my watch"):
            sandbox.write("f", "x")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(entry["op"], entry["decision"]) for entry in entries if entry["event"] == "ended"] == [
        ("create", "allowed"),
        ("exec", "allowed"),
        ("write", "denied"),
        ("destroy", "allowed"),
    ]


def test_a_strict_audit_needs_a_log():
    with pytest.raises(podbay.ConfigError, match=r"audit\.strict: nothing records operations"):
        podbay.Sandbox(strict_audit=True)


def test_a_log_that_cannot_be_written_is_logged_once(tmp_path, caplog):
    logs = tmp_path / "logs"
    logs.mkdir()
    with caplog.at_level(logging.WARNING, "podbay"), podbay.Sandbox(audit_log=logs / "audit.jsonl") as sandbox:
        sandbox.run("true")
        assert caplog.messages == []
        logs.rename(tmp_path / "away")
        for number in range(3):
            assert sandbox.write("f", str(number)).size == 1
        (tmp_path / "away").rename(logs)
    [message] = caplog.messages
    assert message.startswith("can't record 'write' in the audit log: ")
    entries = [json.loads(line) for line in (logs / "audit.jsonl").read_text().splitlines()]
    assert [entry["count"] for entry in entries if entry["event"] == "lost"] == [6]


async def write(sandbox):
    await sandbox.awrite("f", "x")


def test_a_file_is_written_line_by_line(tmp_path):
    log = tmp_path / "audit.jsonl"
    with podbay.Sandbox(audit_log=log, strict_audit=True) as sandbox:
        sandbox.run("true")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(entry["op"], entry["event"], entry.get("decision")) for entry in entries] == [
        (op, *end) for op in ("create", "exec", "destroy") for end in (("begun", None), ("ended", "allowed"))
    ]
    with pytest.raises(podbay.ConfigError, match="no-such-dir"):
        podbay.Sandbox(audit_log=str(tmp_path / "no-such-dir" / "x"))
