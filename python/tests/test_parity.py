"""Every blocking method has an async version with the same parameters and results."""

import asyncio
import inspect
import itertools

import pytest

import podbay

# Results are compared by all attributes except these, which differ between calls.
VARIES = {"id", "started", "duration", "modified", "modified_ns", "user_time", "system_time", "peak_memory", "log"}
VARIES |= {"inode", "info", "check", "processes", "instance", "idle", "active", "created", "expires", "output_bytes"}

# Method, arguments, keyword arguments. Each runs in its own sandbox with the same files.
CALLS = [
    ("run", ("echo out; echo err >&2; exit 3",), {"merge": True}),
    (
        "run",
        ("cat; pwd; echo $A",),
        {"stdin": "in", "cwd": "/tmp", "env": {"A": "1"}, "timeout": 5, "output_limit": 99},
    ),
    ("run", ("sleep 9",), {"timeout": 0.1}),
    ("run", (["/no/such"],), {}),
    ("suspend", (), {}),
    ("resume", (), {}),
    ("start", ("true",), {}),
    ("status", ("nothing",), {}),
    ("commands", (), {"running": True}),
    ("signal", ("nothing", 15), {}),
    ("kill", ("nothing",), {}),
    ("attach", ("nothing",), {}),
    ("hello", (), {}),
    ("protections", (), {}),
    ("read", ("f", 1, 1), {}),
    ("read", ("missing",), {}),
    ("read", ("f", 99), {}),
    ("read_bytes", ("f", 2, 3), {}),
    ("write", ("w", "x"), {"mode": 0o600}),
    ("write", ("f", "x"), {"create_only": True}),
    ("write_output_of", ("o", "unknown"), {"limit": 10}),
    ("edit", ("f", "one", "1"), {}),
    ("edit", ("f", "o", "0"), {}),
    ("ls", (), {}),
    ("ls", ("f",), {}),
    ("stat", ("f",), {}),
    ("glob", ("*.py",), {}),
    ("glob", ("..",), {}),
    ("grep", ("one",), {"max_count": 1}),
    ("grep", ("one", "missing"), {}),
    ("tree", ("d",), {"max_depth": 2}),
    ("tree", ("missing",), {}),
    ("delete", ("d",), {}),
    ("delete", ("missing",), {}),
    ("mkdir", ("m/n",), {}),
    ("move", ("f", "g"), {}),
    ("upload", ([("u", b"1"), ("/proc/x", b"")],), {}),
    ("download", (["f", "missing"],), {}),
    ("upload_file", ("missing-here", "u"), {}),
    ("download_file", ("f", "{tmp}/f"), {}),
    ("upload_tree", ("{tmp}", "t"), {}),
    ("download_tree", ("d", "{tmp}/d"), {}),
    ("open", (), {}),
    ("close", (), {}),
    ("destroy", (), {}),
]

# Compared in a separate test, because it returns a running command.
APART = {"stream"}


def pairs(cls):
    names = {name for name in dir(cls) if not name.startswith("_")}
    return {name: f"a{name}" for name in names if f"a{name}" in names}


def comparable(value):
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    if isinstance(value, BaseException):
        return type(value), str(value), getattr(value, "code", None), getattr(value, "count", None)
    if type(value).__module__.startswith("podbay") and not isinstance(value, podbay.Sandbox):
        fields = [name for name in dir(value) if not name.startswith("_") and name not in VARIES]
        return type(value), {name: comparable(getattr(value, name)) for name in fields}
    return value if isinstance(value, str | bytes | int | float | bool | None) else type(value)


def outcome(call):
    try:
        return comparable(call())
    except podbay.PodbayError as error:
        return comparable(error)


def prepare(sandbox):
    sandbox.write("f", "one two\nthree one\n")
    sandbox.write("d/x.py", "one\n")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]}{call[1]}"[:60])
def test_sync_and_async_do_the_same(call, tmp_path):
    name, arguments, keywords = call
    outcomes = []
    for kind in ("sync", "async"):
        here = tmp_path / kind
        here.mkdir()
        own = [item.replace("{tmp}", str(here)) if isinstance(item, str) else item for item in arguments]
        with podbay.Sandbox(id=f"parity-{kind}") as sandbox:
            prepare(sandbox)
            if kind == "sync":
                outcomes.append(outcome(lambda: getattr(sandbox, name)(*own, **keywords)))  # noqa: B023
            else:

                async def main():
                    return await getattr(sandbox, f"a{name}")(*own, **keywords)  # noqa: B023

                outcomes.append(outcome(lambda: asyncio.run(main())))
    assert repr(outcomes[0]).replace("/sync", "/async") == repr(outcomes[1])


def test_every_method_is_compared():
    assert {name for name, _, _ in CALLS} | APART == set(pairs(podbay.Sandbox))


@pytest.mark.parametrize("cls", [podbay.Sandbox, podbay.Provider, podbay.Manager])
def test_every_blocking_method_has_an_async_version_with_the_same_parameters(cls):
    lone = {
        name
        for name in dir(cls)
        if not name.startswith("_")
        and callable(getattr(cls, name))
        and name not in itertools.chain(*pairs(cls).items())
    }
    # These do no I/O.
    assert lone == {podbay.Manager: {"id"}, podbay.Sandbox: {"disconnect"}}.get(cls, set())
    for sync, other in pairs(cls).items():
        assert inspect.signature(getattr(cls, sync)) == inspect.signature(getattr(cls, other)), sync
        assert getattr(cls, sync).__doc__.split("\n")[0] == getattr(cls, other).__doc__.split("\n")[0]


def test_streams_do_the_same(sandbox):
    command = "echo one; read x; echo $x >&2; exit 4"

    def seen(events):
        data = b"".join(event.data for event in events if isinstance(event, podbay.OutputEvent))
        return data, events[-1].info.exit_code

    with sandbox.stream(command, stdin=True) as running:
        assert running.write("two\n")
        sync = seen(list(running))

    async def main():
        async with await sandbox.astream(command, stdin=True) as running:
            assert await running.write("two\n")
            events = [event async for event in running]
            assert running.offset == 8
            assert (await running.wait()).exit_code == 4
        again = [event async for event in await sandbox.aattach(running.id)]
        assert seen(again) == seen(events)
        return seen(events)

    assert sync == asyncio.run(main()) == (b"one\ntwo\n", 4)


def test_handles_have_the_same_methods():
    def methods(cls):
        return {name for name in dir(cls) if not name.startswith("_")}

    assert methods(podbay.Exec) == methods(podbay.AsyncExec)
