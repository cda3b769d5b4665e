"""Commands: running, following, background commands, killing."""

import pickle
import signal
import time
from datetime import timedelta

import pytest

import podbay


def test_streams_are_told_apart(sandbox):
    result = sandbox.run("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("out\n", "err\n", 3, False)
    assert sorted(result.output.splitlines()) == ["err", "out"]
    assert result.raw_stdout == b"out\n"
    assert result.raw_stderr == b"err\n"
    assert result.output_bytes == 8
    assert result.duration > 0
    assert result.id == result.info.id
    assert "exit_code=3" in repr(result)


def test_merged_output_keeps_its_order(sandbox):
    result = sandbox.run("for i in 1 2 3; do echo $i; echo e$i >&2; done", merge=True)
    assert result.output == "1\ne1\n2\ne2\n3\ne3\n"


def test_words_need_no_shell(sandbox):
    assert sandbox.run(["printf", "%s|", "a b", "$HOME", "*"]).output == "a b|$HOME|*|"
    assert sandbox.run(("echo", b"\xff")).raw == b"\xff\n"
    with pytest.raises(ValueError, match="empty sequence"):
        sandbox.run([])
    with pytest.raises(TypeError, match="a command"):
        sandbox.run(7)


def test_directory_environment_and_input(sandbox):
    sandbox.mkdir("/workspace/d")
    assert sandbox.run("pwd", cwd="d").output == "/workspace/d\n"
    assert sandbox.run("echo $A-$B", env={"A": "1", "B": b"2"}).output == "1-2\n"
    assert sandbox.run("cat", stdin="héllo").output == "héllo"
    assert sandbox.run("cat", stdin=b"\x00\xff").raw == b"\x00\xff"
    assert sandbox.run("cat").output == "", "without input there is none"
    with pytest.raises(TypeError, match="environment"):
        sandbox.run("true", env=["A=1"])


def test_large_input_arrives_whole(sandbox):
    data = bytes(range(256)) * 20_000
    result = sandbox.run("sha256sum | cut -d' ' -f1; true", stdin=data)
    import hashlib

    assert result.output.strip() == hashlib.sha256(data).hexdigest()


def test_input_that_nobody_reads_is_no_error(sandbox):
    # In local sandboxes this used to kill the command's shim, and its outcome was lost.
    for command in ("exit 4", "head -c 10 >/dev/null; exit 4", "exec <&-; sleep 0.02; exit 4"):
        assert [sandbox.run(command, stdin=b"x" * 3_000_000).exit_code for _ in range(10)] == [4] * 10


@pytest.mark.parametrize("timeout", [0.3, timedelta(seconds=0.3)])
def test_time_outs_are_results(sandbox, timeout):
    begun = time.monotonic()
    result = sandbox.run("echo begun; sleep 30", timeout=timeout)
    assert time.monotonic() - begun < 5
    assert (result.exit_code, result.timed_out, result.output) == (124, True, "begun\n")


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf")])
def test_times_that_are_none_are_refused(sandbox, timeout):
    with pytest.raises(ValueError, match="duration"):
        sandbox.run("true", timeout=timeout)


def test_signals_are_named(sandbox):
    result = sandbox.run("kill -9 $$")
    assert (result.exit_code, result.signal, result.timed_out) == (137, "SIGKILL", False)


def test_output_is_capped_with_head_and_tail(sandbox):
    result = sandbox.run("seq 1 100000", output_limit=1000)
    assert result.truncated
    assert len(result.raw) <= 1000
    assert result.dropped == result.output_bytes - len(result.raw)
    assert result.output.startswith("1\n2\n")
    assert result.output.endswith("100000\n")
    assert 0 < result.cut_at < 1000
    whole = sandbox.run("seq 1 100000")
    assert not whole.truncated
    assert whole.cut_at is None
    assert len(whole.raw) == whole.output_bytes


def test_check_raises_what_failed(sandbox):
    assert sandbox.run("true").check().ok
    with pytest.raises(podbay.CommandFailed, match="code 7: it broke") as raised:
        sandbox.run("echo it broke >&2; exit 7").check()
    assert raised.value.result.exit_code == 7
    with pytest.raises(podbay.CommandFailed, match="timed out"):
        sandbox.run("sleep 9", timeout=0.1).check()
    with pytest.raises(podbay.CommandFailed, match="SIGKILL"):
        sandbox.run("kill -9 $$").check()


def test_programs_that_are_not_there(sandbox):
    with pytest.raises(podbay.OperationError) as raised:
        sandbox.run(["/no/such/program"])
    assert raised.value.code == "spawn_failed"
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (copy.code, str(copy)) == ("spawn_failed", str(raised.value))
    assert sandbox.run("no-such-program").exit_code == 127


def test_events_come_while_it_runs(sandbox):
    with sandbox.stream("echo one; read line; echo got $line; echo bad >&2; exit 5", stdin=True) as running:
        first = next(running)
        assert (first.stream, first.data, first.text) == ("stdout", b"one\n", "one\n")
        assert running.offset == 4
        assert "running" in repr(running)
        assert running.write("two\n") is True
        running.close_input()
        events = list(running)
    assert isinstance(events[-1], podbay.EndEvent)
    assert events[-1].info.exit_code == 5
    texts = {event.stream: event.text for event in events[:-1]}
    assert texts == {"stdout": "got two\n", "stderr": "bad\n"}
    assert running.wait().exit_code == 5
    assert list(running) == []
    assert "ended" in repr(running)


def test_a_block_kills_what_still_runs(sandbox):
    with sandbox.stream("sleep 100") as running:
        assert sandbox.status(running.id).state == "running"
    assert sandbox.status(running.id).state == "exited"
    assert sandbox.commands(running=True) == []


def test_without_a_block_it_runs_on_and_is_found_again(sandbox):
    running = sandbox.stream("echo a; sleep 0.3; echo b")
    assert next(running).data == b"a\n"
    name = running.id
    del running
    events = list(sandbox.attach(name, 2))
    assert [event.data for event in events[:-1]] == [b"b\n"]
    assert events[-1].info.state == "exited"
    assert b"".join(event.data for event in list(sandbox.attach(name))[:-1]) == b"a\nb\n"


def test_detached_commands_are_listed_and_ended(sandbox):
    started = sandbox.start("sleep 100", timeout=0)
    assert started.state == "running"
    assert started.exit_code is None
    assert [info.id for info in sandbox.commands(running=True)] == [started.id]
    assert sandbox.status(started.id).processes[0].pid > 0
    assert sandbox.signal(started.id, signal.SIGCONT) >= 1
    assert sandbox.kill(started.id) >= 1
    ended = sandbox.attach(started.id).wait()
    assert (ended.state, ended.killed, ended.signal) == ("exited", True, "SIGKILL")
    assert ended.duration is not None
    assert sandbox.commands(running=True) == []
    assert len(sandbox.commands()) == 1
    assert sandbox.kill(started.id) == 0


def test_a_handle_can_signal_its_command(sandbox):
    running = sandbox.stream("trap 'echo term; exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    assert next(running).data == b"ready\n"
    assert running.signal(signal.SIGTERM) >= 1
    assert running.wait().exit_code in {9, 143}
    other = sandbox.stream("sleep 100")
    assert other.kill() >= 1
    assert other.wait().signal == "SIGKILL"


def test_commands_that_are_not_there(sandbox):
    for call in (sandbox.status, sandbox.kill, sandbox.attach):
        with pytest.raises(podbay.OperationError) as raised:
            call("nothing")
        assert raised.value.code == "exec_not_found"
    with pytest.raises(podbay.OperationError, match="can't be the id of a command"):
        sandbox.status("../x")


def test_logs_are_files(sandbox):
    result = sandbox.run("echo logged")
    assert sandbox.read_bytes(result.info.log) == b"logged\n"
    assert result.info.user_time >= 0
    assert result.info.peak_memory > 0
    assert result.info.error is None


async def test_output_is_written_to_a_file_without_being_fetched(sandbox):
    done = sandbox.run("seq 100000", output_limit=100)
    whole = sandbox.write_output_of("whole", done.info.id, limit=1 << 20)
    assert (whole.size, whole.line_breaks) == (588_895, 100_000)
    assert sandbox.run("seq 100000 | cmp - whole").exit_code == 0
    ends = await sandbox.awrite_output_of("ends", done.info.id, limit=6, gap="<gap>")
    assert sandbox.read_bytes("ends") == b"1\n2<gap>00\n"
    assert ends.line_breaks == 2
    with pytest.raises(podbay.OperationError):
        sandbox.write_output_of("none", "unknown")
    assert sandbox.write("usual", "x").line_breaks is None
