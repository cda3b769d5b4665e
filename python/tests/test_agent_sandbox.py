"""Mode agent-sandbox on a real Kubernetes with upstream's controller: `cargo xtask test python` starts one."""

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path

import pytest

import podbay
from podbay import AgentSandboxConfig

pytestmark = pytest.mark.skipif(
    not (os.environ.get("PODBAY_RIG") and os.environ.get("CLAIMS_KUBECONFIG")),
    reason="needs a cluster with agent-sandbox: cargo xtask test python starts one",
)


def config(**settings):
    return AgentSandboxConfig(kubeconfig=os.environ["CLAIMS_KUBECONFIG"], template_name="python", **settings)


def sandboxes(**settings):
    return podbay.Provider(config=config(**settings))


def test_a_claim_is_a_sandbox_like_others():
    with podbay.Sandbox(config=config()) as sandbox:
        assert (sandbox.mode, sandbox.launch) == ("agent-sandbox", None)
        assert sandbox.open().created
        assert sandbox.launch in ("warm", "cold")
        assert sandbox.run("echo $((2 + 2)); exit 3").exit_code == 3
        sandbox.write("d/f", "one\ntwo\n")
        assert sandbox.edit("d/f", "two", "2").occurrences == 1
        assert [match.text for match in sandbox.grep("2", "d")] == ["2"]
    with pytest.raises(podbay.SandboxNotFound):
        sandboxes().reconnect(sandbox.id)


def test_coroutines_too():
    async def main():
        async with podbay.Sandbox(config=config()) as sandbox:
            assert (await sandbox.arun("echo hi")).output == "hi\n"
            await sandbox.asuspend()
            await sandbox.aresume()
            assert (await sandbox.arun("echo again")).output == "again\n"
            assert sandbox.created
        assert await sandboxes().adelete(sandbox.id) is False

    asyncio.run(main())


def test_a_suspended_sandbox_is_resumed_by_its_next_use_and_still_deleted_at_the_end():
    provider = sandboxes()
    with podbay.Sandbox(config=config(), labels={"test": "suspension"}) as sandbox:
        sandbox.run("true")
        sandbox.suspend()
        assert [listed.phase for listed in provider.list(labels={"test": "suspension"})] == ["suspended"]
        # One that may not resume says what to do.
        kept = podbay.Sandbox(id=sandbox.id, attach=True, config=config(resume=False))
        with pytest.raises(podbay.SandboxSuspended):
            kept.open()
        assert sandbox.run("echo back").output == "back\n"
        provider.suspend(sandbox.id)
        provider.resume(sandbox.id)
        sandbox.disconnect()
        assert sandbox.run("echo back").output == "back\n"
        assert sandbox.created
    assert not list(provider.list(labels={"test": "suspension"}))


def test_attaching_never_creates():
    with pytest.raises(podbay.SandboxNotFound):
        podbay.Sandbox(id="pb-no-such-claim", attach=True, config=config()).open()
    with pytest.raises(ValueError, match="attach needs"):
        podbay.Sandbox(attach=True, config=config())
    with podbay.Sandbox(config=config()) as sandbox:
        sandbox.write("f", "kept")
        with podbay.Sandbox(id=sandbox.id, attach=True, config=config()) as other:
            assert other.read("f").text == "kept"
            assert other.created is False
        assert sandbox.read("f").text == "kept"


def test_skip_cleanup_keeps_the_claim():
    with podbay.Sandbox(config=config(), skip_cleanup=True) as sandbox:
        sandbox.write("f", "kept")
    with podbay.Sandbox(id=sandbox.id, attach=True, config=config()) as again:
        assert again.read("f").text == "kept"
        again.destroy()


def test_a_claim_of_another_program_is_used_only_when_asked_to():
    client = pytest.importorskip("k8s_agent_sandbox").SandboxClient(api_client=api_client())
    namespace = namespace_of_claims()
    handle = client.create_sandbox("python", namespace)
    try:
        with pytest.raises(podbay.NameTaken, match="a Podbay sandbox"):
            podbay.Sandbox(id=handle.claim_name, attach=True, config=config()).open()
        with podbay.Sandbox(id=handle.claim_name, attach=True, config=config(foreign_claims=True)) as sandbox:
            assert sandbox.run("echo theirs").output == "theirs\n"
        assert handle.status()[0] == "SandboxReady"
    finally:
        handle.terminate()


def test_warm_pools():
    pool = sandboxes().pool_status()
    assert pool.target == 1
    with sandboxes(warm_pool_name="python").get_or_create(ttl="10m", labels={"team": "red"}) as sandbox:
        assert sandbox.created
        assert [listed.id for listed in sandboxes().list(labels={"team": "red"})] == [sandbox.id]
    with pytest.raises(podbay.WarmPoolNotFound):
        sandboxes(warm_pool_name="no-such-pool").get_or_create()
    with pytest.raises(podbay.TemplateNotFound):
        podbay.Provider(
            "agent-sandbox", kubeconfig=os.environ["CLAIMS_KUBECONFIG"], template_name="no-such-template"
        ).get_or_create()


def test_managers_find_threads_again():
    manager, thread = podbay.Manager(sandboxes()), uuid.uuid4().hex
    with manager.acquire(thread) as sandbox:
        sandbox.write("f", "kept")
        assert podbay.Manager(sandboxes()).acquire(thread).read("f").text == "kept"
    assert manager.release(thread) is False


def test_a_deep_agents_backend_whose_pod_disappears_gets_a_new_sandbox():
    """A single-sandbox backend used to answer with the same error forever."""
    deepagents = pytest.importorskip("podbay.deepagents")
    with deepagents.PodbaySandbox(config=config()) as backend:
        assert backend.write("/workspace/f", "x").error is None
        delete_pod_of(backend.id)
        failed = backend.execute("echo lost")
        assert failed.exit_code != 0
        assert "gone" in failed.output
        assert backend.execute("cat /workspace/f").exit_code == 1
        assert backend.execute("echo new").output == "new\n"
    assert sandboxes().delete(backend.id) is False


def test_the_tool_runs_code_in_claims():
    tool = pytest.importorskip("podbay.tool")
    run = tool.execute_python_tool("agent-sandbox", **settings())
    files = {"data.csv": {"content": "1,2", "encoding": "utf-8"}}
    code = "print(open('/app/data.csv').read())"
    assert run.invoke({"code": code, "state": {"files": files}}) == "exit=0\n1,2\n"


def test_a_sandbox_manager_serves_threads():
    langgraph = pytest.importorskip("podbay.langgraph")
    manager = langgraph.SandboxManager("agent-sandbox", **settings())
    thread = uuid.uuid4().hex
    try:
        assert manager.acquire(thread).run("echo hi").output == "hi\n"
    finally:
        manager.shutdown()
    with pytest.raises(podbay.SandboxNotFound):
        manager.provider.reconnect(manager.sandbox_id(thread))


def settings():
    return {"kubeconfig": os.environ["CLAIMS_KUBECONFIG"], "template_name": "python"}


def namespace_of_claims():
    kubeconfig = json.loads(Path(os.environ["CLAIMS_KUBECONFIG"]).read_text())
    return kubeconfig["contexts"][0]["context"]["namespace"]


def api_client():
    kubernetes = pytest.importorskip("kubernetes")
    return kubernetes.config.new_client_from_config(os.environ["CLAIMS_KUBECONFIG"])


def delete_pod_of(claim):
    sys.path.insert(0, str(Path(__file__).parent / "compat"))
    from cluster_api import Api

    Api.of_claims().delete_pod_of_claim(claim)
