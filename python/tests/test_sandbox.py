"""The lifecycle of a sandbox."""

import gc
import time

import pytest

import podbay


def ids():
    return {listed.id for listed in podbay.Provider().list(status="running")}


def test_it_is_made_when_it_is_first_used():
    sandbox = podbay.Sandbox()
    assert sandbox.created is None
    assert sandbox.id.startswith("pb-")
    assert sandbox.id not in ids()
    assert "not created yet" in repr(sandbox)
    before = sandbox.id
    assert sandbox.run("true").ok
    assert sandbox.created is True
    assert sandbox.id == before
    assert sandbox.id in ids()
    assert repr(sandbox) == f'<podbay.Sandbox "{before}", local, created>'
    sandbox.close()
    assert sandbox.id not in ids()
    assert sandbox.closed
    assert "closed" in repr(sandbox)


def test_a_block_deletes_what_it_made():
    with podbay.Sandbox(id="made-here") as sandbox:
        assert sandbox.open() is sandbox
        assert "made-here" in ids()
    assert "made-here" not in ids()


def test_a_block_keeps_what_it_found():
    with podbay.Sandbox(id="found") as first:
        first.write("f", "1")
        with podbay.Sandbox(id="found") as second:
            assert second.read("f").text == "1"
            assert second.created is False
            assert first.created is True
        assert first.read("f").text == "1"
        assert second.closed
    assert "found" not in ids()


def test_a_block_that_raises_cleans_up_too():
    with pytest.raises(ZeroDivisionError), podbay.Sandbox(id="raises").open():
        raise ZeroDivisionError
    assert "raises" not in ids()


def test_nothing_is_made_for_a_block_without_use():
    with podbay.Sandbox(id="unused"):
        pass
    assert podbay.Provider().list(status="terminated").sandboxes == []
    assert "unused" not in ids()


def test_what_is_closed_says_so():
    sandbox = podbay.Sandbox()
    sandbox.open()
    sandbox.close()
    sandbox.close()
    with pytest.raises(podbay.ClosedError, match=sandbox.id):
        sandbox.run("true")


def test_destroying_deletes_what_was_found():
    provider = podbay.Provider()
    made = provider.get_or_create("to-destroy")
    found = podbay.Sandbox(id="to-destroy").open()
    assert found.created is False
    assert found.destroy() is True
    assert "to-destroy" not in ids()
    assert found.destroy() is False
    with pytest.raises(podbay.PodbayError):
        made.run("true")


def test_an_unnamed_one_ends_with_its_object():
    sandbox = podbay.Sandbox().open()
    name = sandbox.id
    assert name in ids()
    del sandbox
    gc.collect()
    deadline = time.monotonic() + 10
    while name in ids():
        assert time.monotonic() < deadline, "the sandbox outlives its object"
        time.sleep(0.02)


def test_a_named_one_outlives_its_object():
    sandbox = podbay.Sandbox(id="outlives").open()
    sandbox.write("f", "still here")
    del sandbox
    gc.collect()
    time.sleep(0.1)
    with podbay.Provider().reconnect("outlives") as again:
        assert again.read("f").text == "still here"
        again.destroy()


def test_threads_have_sandboxes_of_their_own():
    with podbay.Sandbox(thread="t1", tenant="acme") as one, podbay.Sandbox(thread="t2", tenant="acme") as two:
        assert one.id == podbay.sandbox_id("acme", "t1") == podbay.Manager.id("acme", "t1")
        one.write("f", "one")
        with pytest.raises(podbay.NotFound):
            two.read("f")
        with podbay.Sandbox(thread="t1", tenant="acme") as again:
            assert again.read("f").text == "one"


def test_id_and_thread_exclude_each_other():
    with pytest.raises(ValueError, match="id and thread"):
        podbay.Sandbox(id="x", thread="y")


@pytest.mark.parametrize("name", ["", "A", "../x", "a" * 64, "-a"])
def test_bad_names_are_refused(name):
    with pytest.raises(podbay.ConfigError, match="can't name a sandbox"):
        podbay.Sandbox(id=name).open()


def test_its_time_ends_it():
    sandbox = podbay.Sandbox(id="short-lived", ttl=0.3)
    sandbox.open()
    deadline = time.monotonic() + 10
    while "short-lived" in ids():
        assert time.monotonic() < deadline, "the sandbox outlives its time"
        time.sleep(0.05)
    with pytest.raises(podbay.PodbayError):
        sandbox.run("true")
    sandbox.close()


def test_it_tells_who_it_is(sandbox):
    welcome = sandbox.hello()
    assert welcome.workdir == "/workspace"
    assert welcome.build == podbay.__version__
    assert welcome.running == 0
    assert welcome.instance


def test_it_is_hashable_and_can_be_referred_to_weakly(sandbox):
    import weakref

    assert {sandbox: 1}[sandbox] == 1
    assert weakref.ref(sandbox)() is sandbox


def test_labels_are_kept():
    with podbay.Sandbox(id="labelled", labels={"team": "red"}) as sandbox:
        sandbox.open()
        (listed,) = podbay.Provider().list(labels={"team": "red"})
        assert listed.id == "labelled"
        assert listed.labels["team"] == "red"
        assert listed.created <= time.time()
        assert len(podbay.Provider().list(labels={"team": "blue"})) == 0


def test_other_modes_cant_suspend(sandbox):
    sandbox.run("true")
    with pytest.raises(podbay.OperationError, match="agent-sandbox"):
        sandbox.suspend()


def test_skip_cleanup_and_attach():
    with podbay.Sandbox(skip_cleanup=True) as sandbox:
        sandbox.write("f", "kept")
    with podbay.Sandbox(id=sandbox.id, attach=True) as again:
        assert again.read("f").text == "kept"
        assert again.created is False
        assert again.launch is None
        again.destroy()
    with pytest.raises(podbay.SandboxNotFound):
        podbay.Sandbox(id=sandbox.id, attach=True).open()
    with pytest.raises(ValueError, match="attach needs"):
        podbay.Sandbox(attach=True)


def test_a_handle_that_was_dropped_finds_its_sandbox_and_still_deletes_it():
    with podbay.Sandbox(id="dropped") as sandbox:
        sandbox.write("f", "kept")
        sandbox.disconnect()
        assert sandbox.read("f").text == "kept"
        assert sandbox.created
    assert podbay.Provider().delete("dropped") is False
