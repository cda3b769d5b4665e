"""The same on a real Kubernetes: `cargo xtask test python` starts one and creates an account in it."""

import asyncio
import os

import pytest

import podbay
from podbay import RawConfig

pytestmark = pytest.mark.skipif(
    not os.environ.get("PODBAY_RIG"), reason="needs a cluster: cargo xtask test python starts one"
)

DEBIAN, BUSYBOX, NONROOT = "localhost/debian:1", "localhost/busybox:1", "localhost/nonroot:1"


def config(image=DEBIAN, **settings):
    return RawConfig(image=image, image_pull_policy="Never", memory_request="16Mi", cpu_request="10m", **settings)


@pytest.fixture(scope="module", params=[DEBIAN, BUSYBOX, NONROOT])
def pod(request):
    with podbay.Sandbox(config=config(request.param, read_only_root=request.param == NONROOT)) as sandbox:
        yield sandbox


def test_a_pod_is_a_sandbox_like_others(pod):
    assert (pod.mode, pod.open().created) == ("raw", True)
    assert pod.run("echo $((2 + 2)); echo err >&2; exit 3").exit_code == 3
    assert pod.run("cat", stdin="in").output == "in"
    pod.write("d/f", "one\ntwo\n")
    assert pod.run("cat f", cwd="d").output == "one\ntwo\n"
    assert pod.read("d/f", 1).text == "two"
    assert pod.edit("d/f", "two", "2").occurrences == 1
    assert [match.path for match in pod.glob("*", "d")] == ["/workspace/d/f"]
    assert [match.text for match in pod.grep("2", "d")] == ["2"]
    with pytest.raises(podbay.NotFound):
        pod.read("nothing")
    for place in ("/large_tool_results/x", "/conversation_history/y", "/blobs/z"):
        pod.write(place, "kept")
        assert pod.read(place).text == "kept"


def test_transfers_and_progress(pod, tmp_path):
    data = os.urandom(3 << 20)
    (tmp_path / "up").mkdir()
    (tmp_path / "up" / "big").write_bytes(data)
    seen = []
    assert pod.upload_tree(tmp_path / "up", "/workspace/up", progress=seen.append).files == 1
    assert seen[-1].bytes == len(data)
    assert pod.download_tree("/workspace/up", tmp_path / "down").files == 1
    assert (tmp_path / "down" / "big").read_bytes() == data
    results = pod.upload([(f"/workspace/many/{i}", str(i)) for i in range(200)])
    assert [result.error for result in results] == [None] * 200


def test_coroutines_and_cancellation(pod):
    async def main():
        results = await asyncio.gather(*[pod.arun(f"echo {i}") for i in range(50)])
        assert [result.output for result in results] == [f"{i}\n" for i in range(50)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pod.arun("sleep 100"), 0.5)
        async with asyncio.timeout(20):
            while await pod.acommands(running=True):
                await asyncio.sleep(0.05)
        events = [event async for event in await pod.astream("echo a; sleep 0.2; echo b")]
        assert b"".join(event.data for event in events[:-1]) == b"a\nb\n"

    asyncio.run(main())


def test_providers_find_threads_again():
    provider = podbay.Provider(config=config())
    with provider.get_or_create(thread="t", tenant="acme", labels={"team": "red"}, ttl="10m") as one:
        assert one.created
        one.write("f", "kept")
        with podbay.Sandbox(thread="t", tenant="acme", config=config()) as again:
            assert again.read("f").text == "kept"
            assert again.created is False
        assert [listed.id for listed in provider.list(labels={"team": "red"})] == [one.id]
        assert provider.stats().running >= 1
    with pytest.raises(podbay.SandboxNotFound):
        provider.reconnect(one.id)
    assert provider.pool_status().target == 0


def test_managers_and_pools():
    provider = podbay.Provider(config=config(warm_pool_size=1, warm_pool_name="python"))
    filled = provider.refill()
    assert (filled.available, filled.target) == (1, 1)
    manager = podbay.Manager(provider)
    with manager.acquire("from the pool", "acme") as sandbox:
        assert sandbox.created
        assert sandbox.run("echo warm").output == "warm\n"
        assert provider.pool_status().active == 1
        assert [listed.id for listed in manager.list("acme")] == [sandbox.id]
    assert manager.release("from the pool", "acme") is False


def test_rules_hold_in_pods_too():
    told = []
    with podbay.Sandbox(
        config=config(),
        deny_commands=["curl"],
        allow_prefixes=["/workspace"],
        audit_log=lambda *entry: told.append(entry[0]),
    ) as sandbox:
        with pytest.raises(podbay.PolicyDenied):
            sandbox.run("curl x")
        with pytest.raises(podbay.PolicyDenied):
            sandbox.write("/tmp/x", "")
    assert told == ["create", "exec", "write", "destroy"]


def test_what_cannot_start_says_why():
    with pytest.raises(podbay.StartupFailed, match="no-such-image"):
        podbay.Sandbox(config=config("localhost/no-such-image:1")).open()
    with pytest.raises(podbay.PermissionDenied) as denied:
        podbay.Sandbox(config=config(namespace="kube-system")).open()
    assert isinstance(denied.value, PermissionError)
    with pytest.raises(podbay.ConfigError, match=r"raw\.tolerations"):
        podbay.Sandbox("raw", tolerations={"key": "gpu"}).open()
    with pytest.raises(podbay.ConfigError, match="leashed"):
        podbay.Sandbox(config=config(), leashed=True).open()


def test_no_way_to_a_cluster(tmp_path):
    with pytest.raises(podbay.Unreachable, match="kubeconfig"):
        podbay.Sandbox("raw", kubeconfig=str(tmp_path / "nothing")).open()
