"""Commands: how they end, what is shown of their output, and that nothing keeps running after they are cancelled."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

import podbay
from podbay.deepagents import PodbaySandbox


def running(backend, name):
    """Whether a command of that name is running. `[x]yz` finds it without finding the search itself."""
    pattern = f"[{name[0]}]{name[1:]}"
    return (
        backend.execute(
            f"for c in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $c; done 2>/dev/null | grep -q '{pattern}'"
        ).exit_code
        == 0
    )


def wait_until_gone(backend, name):
    deadline = time.monotonic() + 10
    while running(backend, name):
        assert time.monotonic() < deadline, f"{name} still runs"
        time.sleep(0.05)


def test_output_comes_in_order(backend):
    result = backend.execute("for i in 1 2 3; do echo out $i; echo err $i >&2; done; exit 5")
    assert result.output == "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"
    assert (result.exit_code, result.truncated) == (5, False)


def test_a_command_is_a_script(backend, root):
    command = f"mkdir -p {root} && cd {root}\ncat <<'E' | tr a-z A-Z > shout\nhello $HOME\nE\ncat shout; pwd"
    assert backend.execute(command).output == f"HELLO $HOME\n{root}\n"
    assert backend.execute("pwd; cat; echo end").output == "/workspace\nend\n"


def test_a_command_that_takes_too_long(backend):
    started = time.monotonic()
    result = backend.execute("echo begun; sleep 4711", timeout=1)
    assert time.monotonic() - started < 10
    assert (result.output, result.exit_code) == ("begun\nCommand timed out after 1 seconds", 124)
    wait_until_gone(backend, "sleep 4711")


async def test_a_command_that_takes_too_long_async(backend):
    result = await backend.aexecute("echo begun; sleep 4712", timeout=1)
    assert (result.output, result.exit_code) == ("begun\nCommand timed out after 1 seconds", 124)
    wait_until_gone(backend, "sleep 4712")


def test_times():
    with PodbaySandbox(timeout=0.3) as backend:
        assert backend.execute("sleep 5").output == "Command timed out after 0.3 seconds"
        assert backend.execute("sleep 0.6; echo done", timeout=0).output == "done\n"
        assert backend.execute("sleep 0.6; echo done", timeout=5).output == "done\n"
        assert backend.execute("true", timeout=-1).exit_code == 1
    with pytest.raises(ValueError, match="timeout=-1"):
        PodbaySandbox(timeout=-1)
    # dcode's `timeout = "5m"` was a TypeError.
    with PodbaySandbox(timeout="300ms") as backend:
        assert backend.execute("sleep 60").exit_code == 124
    with pytest.raises(podbay.ConfigError, match="15m"):
        PodbaySandbox(timeout="soon")


def test_how_commands_end(backend):
    assert backend.execute("kill -9 $$").exit_code == 137
    assert backend.execute("kill -9 $$").output.endswith("Command was killed by SIGKILL")
    assert backend.execute("no-such-program-at-all").exit_code == 127
    assert backend.execute("").exit_code == 0


def test_background_processes_hold_nothing_back(backend):
    started = time.monotonic()
    assert backend.execute("sleep 47 & echo started").output == "started\n"
    assert time.monotonic() - started < 10
    assert running(backend, "sleep 47")
    found = "tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q '^sleep 47 '"
    backend.execute(f"for p in /proc/[0-9]*; do {found} && kill ${{p#/proc/}}; done")
    wait_until_gone(backend, "sleep 47")


async def test_giving_up_ends_the_command(backend):
    task = asyncio.create_task(backend.aexecute("sleep 4713; echo never"))
    while not await asyncio.to_thread(running, backend, "sleep 4713"):
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_until_gone, backend, "sleep 4713")


async def test_giving_up_a_captured_command_ends_it(backend):
    work = backend.aexecute_with_offload("sleep 4714", "/large_tool_results/given-up", max_inline_bytes=100)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(work, 1)
    await asyncio.to_thread(wait_until_gone, backend, "sleep 4714")


async def test_waiting_blocks_nobody(backend):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    # If the loop were blocked, there would be one tick. Only a few are required, so that this passes on a busy machine.
    assert (await backend.aexecute("sleep 1; echo up")).output == "up\n"
    assert ticks > 5
    ticking.cancel()
    results = await asyncio.gather(*(backend.aexecute(f"sleep 0.2; echo {n}") for n in range(20)))
    assert [result.output for result in results] == [f"{n}\n" for n in range(20)]


def test_long_output_keeps_its_ends():
    with PodbaySandbox(output_limit=10_000) as backend:
        result = backend.execute("echo first; yes é | head -n 100000; echo last")
        assert (result.truncated, result.exit_code) == (True, 0)
        assert result.output.startswith("first\n")
        assert result.output.endswith("é\nlast\n")
        assert len(result.output.encode()) < 10_200
        assert "\ufffd" not in result.output
        log = re.search(r"\[\d+ bytes omitted here; full output in (\S+)\]", result.output).group(1)
        assert backend.read(log, 100_001).file_data["content"] == "last"
        assert backend.execute(f"wc -l < {log}").output.strip() == "100002"


def test_large_output_is_kept_as_a_file(backend, root):
    path = f"/large_tool_results/{root.rsplit('/')[-1]}"
    result = backend.execute_with_offload("seq 50000; exit 4", path, max_inline_bytes=80_000)
    assert (result.offloaded, result.preview_has_truncation_marker) == (True, True)
    assert (result.response.exit_code, result.response.truncated) == (4, False)
    assert result.response.output == (
        "1\n2\n3\n4\n5\n... [49990 lines truncated] ...\n49996\n49997\n49998\n49999\n50000\n"
    )
    assert backend.read(path, 49_999).file_data["content"] == "50000"
    small = backend.execute_with_offload("seq 3", path + "-small", max_inline_bytes=80_000)
    assert (small.offloaded, small.response.output) == (False, "1\n2\n3\n")
    assert backend.read(path + "-small").error == f"File '{path}-small': file_not_found"


def test_large_output_of_a_command_that_takes_too_long(backend, root):
    path = f"/large_tool_results/{root.rsplit('/')[-1]}"
    result = backend.execute_with_offload("seq 50000; sleep 60", path, max_inline_bytes=1000, timeout=1)
    assert result.offloaded
    assert result.response.exit_code == 124
    assert result.response.output.endswith("50000\nCommand timed out after 1 seconds")


async def test_output_that_cannot_be_kept_is_shown_within_limits(backend, root):
    """Upstream loses the output altogether; returning a megabyte of it would fill the model's context."""
    assert backend.write(f"{root}/file", "x").error is None
    for result in (
        backend.execute_with_offload("seq 50000", f"{root}/file/no", max_inline_bytes=2000),
        await backend.aexecute_with_offload("seq 50000", f"{root}/file/no", max_inline_bytes=2000),
    ):
        assert (result.offloaded, result.response.truncated, result.response.exit_code) == (False, True, 0)
        assert result.response.output.startswith("1\n2\n3\n")
        assert result.response.output.endswith("49999\n50000\n")
        assert f"couldn't be saved to {root}/file/no" in result.response.output
        assert len(result.response.output) < 2300


def test_capturing_can_be_turned_off(local):
    class Plain(PodbaySandbox):
        enable_capture_offload = False

    with Plain() as backend:
        result = backend.execute_with_offload("seq 50000", "/large_tool_results/off", max_inline_bytes=10)
        assert not result.offloaded
        assert len(result.response.output) > 200_000
        assert backend.read("/large_tool_results/off").error is not None
