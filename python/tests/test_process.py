"""Threads, forks, signals, interpreter shutdown, and leaks."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import podbay
from patience import long


def python(program, **options):
    """Runs a program in a separate Python and returns its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_hundred_threads_on_one_sandbox(sandbox):
    def work(i):
        sandbox.write(f"t/{i}", str(i))
        assert sandbox.run(f"cat t/{i}").output == str(i)
        return sandbox.read(f"t/{i}").text

    with ThreadPoolExecutor(100) as pool:
        assert list(pool.map(work, range(300))) == [str(i) for i in range(300)]


def test_calls_release_the_lock(sandbox):
    sandbox.open()
    waiting = threading.Thread(target=sandbox.run, args=("sleep 0.5",))
    waiting.start()
    turns = 0
    while waiting.is_alive():
        turns += 1
        time.sleep(0.005)
    assert turns > 20


def test_many_threads_make_one_sandbox():
    with podbay.Sandbox() as sandbox, ThreadPoolExecutor(20) as pool:
        assert len({welcome.instance for welcome in pool.map(lambda _: sandbox.hello(), range(40))}) == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_gets_a_clear_error_and_never_hangs(sandbox):
    sandbox.open()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = []
            for attempt in (lambda: sandbox.run("true"), lambda: asyncio.run(wait()), podbay.Provider().list):

                async def wait():
                    await sandbox.arun("true")

                try:
                    attempt()
                except podbay.ForkError as error:
                    said.append("spawn" in str(error) and isinstance(error, RuntimeError))
            os.write(writer, repr(said).encode())
        finally:
            os._exit(0)
    os.close(writer)
    deadline = time.monotonic() + 20
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.02)
    assert os.read(reader, 1000) == b"[True, True, True]"
    os.close(reader)
    assert sandbox.run("echo parent").output == "parent\n", "the parent goes on"


def test_a_fork_before_the_first_use_may_use_it():
    output = python("""
        import os, podbay
        child = os.fork()
        with podbay.Sandbox() as sandbox:
            print(sandbox.run("echo it works").output, end="", flush=True)
        if child == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """)
    assert output == "it works\n" * 2


def test_processes_that_are_spawned_share_sandboxes():
    with podbay.Sandbox(id="shared") as sandbox:
        sandbox.write("f", "from the parent")
        output = python("""
            import podbay
            sandbox = podbay.Provider().reconnect("shared")
            print(sandbox.read("f").text)
            sandbox.write("g", "from the child")
        """)
        assert output == "from the parent\n"
        assert sandbox.read("g").text == "from the child"


@pytest.fixture
def heeds_ctrl_c():
    """Shells start background jobs with SIGINT ignored, and Python keeps it ignored, so tests under nohup failed."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_interrupts_a_call_and_stops_the_command(sandbox):
    sandbox.open()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sandbox.run("sleep 100")
    assert time.monotonic() - begun < 5
    deadline = time.monotonic() + 10
    while sandbox.commands(running=True):
        assert time.monotonic() < deadline, "the command still runs"
        time.sleep(0.02)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_interrupts_a_stream(sandbox):
    running = sandbox.stream("sleep 100")
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), running:
        next(running)
    assert sandbox.status(running.id).state == "exited"


def test_the_interpreter_ends_in_the_middle_of_everything():
    begun = time.monotonic()
    output = python("""
        import asyncio, threading, podbay
        sandbox = podbay.Sandbox(audit_log=lambda *entry: None).open()
        threading.Thread(target=sandbox.run, args=("sleep 100",), daemon=True).start()
        running = sandbox.stream("while :; do echo x; done")
        next(running)
        async def main():
            asyncio.create_task(sandbox.arun("sleep 100"))
            await asyncio.sleep(0.2)
        asyncio.run(main())
        print(sandbox.id)
    """)
    assert time.monotonic() - begun < 30
    name = output.strip()
    deadline = time.monotonic() + 10
    while name in {listed.id for listed in podbay.Provider().list(status="running")}:
        assert time.monotonic() < deadline, "the sandbox outlives its process"
        time.sleep(0.05)


def test_a_killed_process_takes_its_sandbox_with_it():
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import podbay\ns = podbay.Sandbox().open()\nprint(s.id, flush=True)\ns.run('sleep 100')",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    name = child.stdout.readline().strip()
    assert name in {listed.id for listed in podbay.Provider().list(status="running")}
    child.kill()
    child.wait()
    child.stdout.close()
    deadline = time.monotonic() + 10
    while name in {listed.id for listed in podbay.Provider().list(status="running")}:
        assert time.monotonic() < deadline, "the sandbox outlives its process"
        time.sleep(0.05)


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def threads():
    return len(list(Path("/proc/self/task").iterdir()))


def children():
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += (task / "children").read_text().split()
    return len(found)


def test_nothing_stays_behind_after_many_sandboxes():
    def once(i):
        with podbay.Sandbox() as sandbox:
            assert sandbox.run("echo x").output == "x\n"

        async def main():
            async with podbay.Sandbox() as sandbox:
                assert (await sandbox.arun("echo y")).output == "y\n"

        if i % 2:
            asyncio.run(main())

    def counted():
        return descriptors(), threads(), children()

    def settled(before):
        # The runtime's idle threads end after ten seconds.
        deadline = time.monotonic() + 30
        while any(now > then for now, then in zip(counted(), before, strict=True)) and time.monotonic() < deadline:
            gc.collect()
            time.sleep(0.2)
        return counted()

    for i in range(10):
        once(i)
    before = counted()
    for i in range(long(50, 670)):
        once(i)
    after = settled(before)
    assert after[0] <= before[0] + 2, f"descriptors: {before} then {after}"
    assert after[1] <= before[1] + 2, f"threads: {before} then {after}"
    assert after[2] <= before[2], f"processes: {before} then {after}"
    assert len(podbay.Provider().list(status="running")) == 0
