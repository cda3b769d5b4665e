"""Coroutines: on any event loop, and cancelled with their task."""

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Coroutine

import pytest

import podbay
from patience import long


def run(main):
    """Runs in asyncio's debug mode, which reports slow callbacks and coroutines that are never awaited."""
    return asyncio.run(main(), debug=True)


def test_they_are_coroutines(sandbox):
    async def main():
        operation = sandbox.arun("echo 1")
        assert isinstance(operation, Coroutine)
        assert asyncio.iscoroutine(operation)
        assert "arun" in repr(operation)
        assert (await operation).output == "1\n"
        with pytest.raises(RuntimeError, match="already awaited"):
            await operation
        task = asyncio.create_task(sandbox.arun("echo 2"), name="two")
        assert "arun" in repr(task)
        assert (await task).output == "2\n"
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(sandbox.arun(f"echo {i}")) for i in range(5)]
        assert [task.result().output for task in tasks] == [f"{i}\n" for i in range(5)]
        return "done"

    assert run(main) == "done"


def test_nothing_happens_before_it_is_awaited(sandbox):
    async def main():
        operation = sandbox.awrite("f", "1")
        await asyncio.sleep(0.05)
        with pytest.raises(podbay.NotFound):
            await sandbox.astat("f")
        await operation
        assert (await sandbox.astat("f")).size == 1

    run(main)


def test_a_forgotten_await_is_told(sandbox):
    with pytest.warns(RuntimeWarning, match="'arun' was never awaited"):
        sandbox.arun("true")
        gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sandbox.arun("true").close()
        gc.collect()


def test_errors_come_as_exceptions(sandbox):
    async def main():
        with pytest.raises(FileNotFoundError):
            await sandbox.aread("/nothing")
        results = await asyncio.gather(
            sandbox.aread("/nothing"), sandbox.arun("true"), sandbox.als("/nothing"), return_exceptions=True
        )
        assert [type(result).__name__ for result in results] == ["NotFound", "ExecResult", "NotFound"]

    run(main)


def nothing_runs(sandbox):
    deadline = time.monotonic() + 10
    while sandbox.commands(running=True):
        assert time.monotonic() < deadline, "the command still runs"
        time.sleep(0.02)


def test_cancelling_a_task_stops_the_command(sandbox):
    async def main():
        task = asyncio.create_task(sandbox.arun("while :; do date > /workspace/tick; sleep 0.01; done", timeout=0))
        while not (await sandbox.aglob("tick")).matches:
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)
    nothing_runs(sandbox)


def test_a_time_limit_stops_the_command(sandbox):
    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sandbox.arun("sleep 100"), 0.2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await sandbox.arun("sleep 100", stdin=b"x" * 100)

    run(main)
    nothing_runs(sandbox)


def test_a_loop_that_ends_stops_the_command(sandbox):
    async def main():
        asyncio.create_task(sandbox.arun("sleep 100"))  # noqa: RUF006
        while not await sandbox.acommands(running=True):
            await asyncio.sleep(0.02)

    run(main)
    nothing_runs(sandbox)


def test_cancelling_one_leaves_the_others(sandbox):
    async def main():
        slow = [asyncio.create_task(sandbox.arun("sleep 0.5; echo slow")) for _ in range(4)]
        doomed = [asyncio.create_task(sandbox.arun("sleep 100")) for _ in range(4)]
        await asyncio.sleep(0.2)
        for task in doomed:
            task.cancel()
        assert [(await task).output for task in slow] == ["slow\n"] * 4
        results = await asyncio.gather(*doomed, return_exceptions=True)
        assert {type(result) for result in results} == {asyncio.CancelledError}

    run(main)
    nothing_runs(sandbox)


def test_a_search_that_nobody_waits_for_is_cancelled(sandbox):
    # Create much to search, because the size of the host's /usr varies. It is text, because binary files are skipped.
    text = "head -c 33554432 /dev/zero | tr '\\0' '\\n' > 0"
    assert sandbox.run(f"{text}; for i in $(seq 400); do ln 0 $i; done").exit_code == 0

    async def main():
        task = asyncio.create_task(sandbox.agrep("no such text", "/workspace", budget=60))
        await asyncio.sleep(0.05)
        assert not task.done()
        task.cancel()
        begun = time.monotonic()
        await sandbox.astat("/workspace")
        assert time.monotonic() - begun < 1

    run(main)


def test_following_can_be_given_up_and_taken_up(sandbox):
    async def main():
        running = await sandbox.astream("echo a; sleep 0.4; echo b")
        assert (await anext(running)).data == b"a\n"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(running), 0.1)
        rest = [event async for event in running]
        assert rest[0].data == b"b\n"
        assert rest[-1].info.exit_code == 0
        with pytest.raises(StopAsyncIteration):
            await anext(running)

    run(main)


def test_blocks_make_and_delete():
    async def main():
        async with podbay.Sandbox(id="async-block") as sandbox:
            assert await sandbox.aopen() is sandbox
            assert (await sandbox.arun("echo hi")).output == "hi\n"
            async with await sandbox.astream("sleep 100") as running:
                pass
            assert (await sandbox.astatus(running.id)).state == "exited"
        assert sandbox.closed
        assert "async-block" not in {listed.id for listed in await podbay.Provider().alist()}

    run(main)


def test_many_first_uses_make_one_sandbox():
    async def main():
        async with podbay.Sandbox() as sandbox:
            results = await asyncio.gather(*[sandbox.ahello() for _ in range(50)])
            assert len({result.instance for result in results}) == 1

    run(main)


def test_what_is_being_made_when_its_task_is_cancelled_is_deleted_too():
    async def main(delay):
        sandbox = podbay.Sandbox(id="half-made")
        task = asyncio.create_task(sandbox.arun("true"))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await sandbox.aclose()
        assert "half-made" not in {listed.id for listed in await podbay.Provider().alist()}

    for delay in range(20):
        asyncio.run(main(delay / 1000))


def test_several_loops_one_after_the_other(sandbox):
    for i in range(20):

        async def main(i=i):
            return (await sandbox.arun(f"echo {i}")).output

        assert asyncio.run(main()) == f"{i}\n"


def test_several_loops_at_once(sandbox):
    outputs = {}

    def work(name):
        async def main():
            results = await asyncio.gather(*[sandbox.arun(f"echo {name}.{i}") for i in range(10)])
            return [result.output.strip() for result in results]

        outputs[name] = asyncio.run(main())

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {name: [f"{name}.{i}" for i in range(10)] for name in range(8)}


def test_a_thousand_coroutines_on_one_sandbox(sandbox):
    count = long(1000, 5000)

    async def main():
        await asyncio.gather(*[sandbox.awrite(f"f/{i}", str(i)) for i in range(count)])
        pages = await asyncio.gather(*[sandbox.aread(f"f/{i}") for i in range(count)])
        assert [page.text for page in pages] == [str(i) for i in range(count)]
        commands = await asyncio.gather(*[sandbox.arun(f"echo {i}", timeout=120) for i in range(1000)])
        assert [command.output for command in commands] == [f"{i}\n" for i in range(1000)]

    asyncio.run(main())


def test_the_loop_stays_free_while_work_goes_on(sandbox):
    async def main():
        task = asyncio.create_task(sandbox.arun("sleep 0.5"))
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return ticks

    assert asyncio.run(main()) > 20


def test_outside_a_loop_it_says_so(sandbox):
    operation = sandbox.arun("true")
    with pytest.raises(RuntimeError, match="no running event loop"):
        operation.send(None)


def test_uvloop_works_too(sandbox):
    uvloop = pytest.importorskip("uvloop")

    async def main():
        results = await asyncio.gather(*[sandbox.arun(f"echo {i}") for i in range(50)])
        assert [result.output for result in results] == [f"{i}\n" for i in range(50)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sandbox.arun("sleep 100"), 0.1)

    for _ in range(3):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    nothing_runs(sandbox)
