"""Providers and managers: finding, creating, listing and deleting sandboxes."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import podbay


@pytest.fixture
def provider():
    provider = podbay.Provider()
    yield provider
    for listed in provider.list():
        provider.delete(listed.id)


def test_getting_is_making_once(provider):
    assert provider.mode == "local"
    assert "local" in repr(provider)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: provider.get_or_create("once"), range(8)))
    assert sorted(sandbox.created for sandbox in made) == [False] * 7 + [True]
    assert len({sandbox.hello().instance for sandbox in made}) == 1
    assert provider.reconnect("once").created is False
    assert provider.delete("once") is True
    assert provider.delete("once") is False
    with pytest.raises(podbay.SandboxNotFound, match="once") as raised:
        provider.reconnect("once")
    assert isinstance(raised.value, LookupError)


def test_unnamed_ones_stay_until_deleted(provider):
    sandbox = provider.get_or_create()
    name = sandbox.id
    assert sandbox.run("true").ok
    del sandbox
    assert provider.reconnect(name).run("echo still").output == "still\n"


def test_lists_come_in_pages(provider):
    for i in range(5):
        provider.get_or_create(f"page-{i}", labels={"n": str(i % 2)})
    page = provider.list(limit=2)
    assert [listed.id for listed in page] == ["page-0", "page-1"]
    assert len(page) == 2
    seen = [*page.sandboxes]
    while page.cursor:
        page = provider.list(limit=2, cursor=page.cursor)
        seen += page.sandboxes
    assert [listed.id for listed in seen] == [f"page-{i}" for i in range(5)]
    assert [listed.id for listed in provider.list(labels={"n": "1"})] == ["page-1", "page-3"]
    assert {listed.phase for listed in provider.list(status="running")} == {"running"}
    assert provider.list(status="warm").sandboxes == []
    with pytest.raises(ValueError, match="pending, warm"):
        provider.list(status="happy")


def test_times_are_told(provider):
    provider.get_or_create("timed", ttl="1h", idle_ttl=timedelta(minutes=30))
    (listed,) = provider.list()
    now = time.time()
    assert abs(listed.created - now) < 60
    assert abs(listed.active - now) < 60
    assert listed.expires == pytest.approx(listed.active + 1800, abs=60)


def test_counting_and_clearing(provider):
    provider.get_or_create("quiet")
    busy = provider.get_or_create("busy")
    stats = provider.stats()
    assert (stats.total, stats.running, stats.warm, stats.idle) == (2, 2, 0, 0)
    time.sleep(0.5)
    busy.run("true")
    assert provider.stats(idle=0.4).idle == 1
    cleaned = provider.cleanup(max_idle="400ms")
    assert (cleaned.deleted, cleaned.kept, cleaned.failed) == (["quiet"], 1, [])


def test_pools_are_raw_modes(provider):
    status = provider.pool_status()
    assert (status.available, status.active, status.total, status.target) == (0, 0, 0, 0)
    with pytest.raises(podbay.OperationError, match="warm_pool_size") as raised:
        provider.refill()
    assert raised.value.code == "unsupported"


def test_all_of_it_asynchronously(provider):
    async def main():
        made = await asyncio.gather(*[provider.aget_or_create("async", labels={"a": "b"}) for _ in range(5)])
        assert sorted(sandbox.created for sandbox in made) == [False] * 4 + [True]
        assert (await (await provider.areconnect("async")).arun("echo x")).output == "x\n"
        assert [listed.id for listed in await provider.alist(labels={"a": "b"})] == ["async"]
        assert (await provider.astats()).running == 1
        assert (await provider.apool_status()).target == 0
        with pytest.raises(podbay.OperationError):
            await provider.arefill()
        assert (await provider.acleanup()).kept == 1
        assert await provider.adelete("async") is True

    asyncio.run(main())


def test_rules_hold_for_what_a_provider_gives():
    told = []
    provider = podbay.Provider(deny_commands=["curl"], audit_log=lambda op, target, meta: told.append(op))
    with provider.get_or_create("ruled") as sandbox, pytest.raises(podbay.PolicyDenied):
        sandbox.run("curl x")
    assert told == ["create", "exec", "destroy"]


def test_managers_map_conversations_to_sandboxes(provider):
    manager = podbay.Manager(provider, labels={"app": "test"}, ttl=3600)
    one = manager.acquire("thread-1", "acme")
    assert one.id == podbay.Manager.id("acme", "thread-1")
    assert (one.created, one.replaced) == (True, False)
    one.write("f", "kept")
    again = podbay.Manager().acquire("thread-1", "acme")
    assert (again.read("f").text, again.created) == ("kept", False)
    other = manager.acquire("thread-1", "umbrella")
    assert other.id != one.id
    assert [listed.id for listed in manager.list("acme")] == [one.id]
    assert manager.list("acme").sandboxes[0].labels["app"] == "test"
    provider.delete(one.id)
    anew = manager.acquire("thread-1", "acme")
    assert (anew.created, anew.replaced) == (True, True)
    assert manager.release("thread-1", "acme") is True
    assert manager.release("thread-1", "acme") is False
    assert manager.acquire("no tenant").id == podbay.sandbox_id("", "no tenant")
    assert manager.provider.mode == "local"
    with pytest.raises(ValueError, match="provider"):
        podbay.Manager(provider, mode="local")

    async def main():
        sandbox = await manager.aacquire("thread-2", "acme")
        assert (await sandbox.arun("echo x")).output == "x\n"
        assert len(await manager.alist("acme")) == 1
        assert await manager.arelease("thread-2", "acme")

    asyncio.run(main())
