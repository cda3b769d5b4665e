"""README section "Provider — get_or_create and reconnect"."""

import asyncio
import time
from datetime import datetime

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig, SandboxNotFoundError

provider = KubernetesProvider(
    KubernetesProviderConfig(mode=MODE, template_name=TEMPLATE, image=IMAGE, namespace=NAMESPACE)
)
made = []


def keep(sandbox):
    made.append(sandbox.id)
    return sandbox


try:
    sandbox = keep(provider.get_or_create())
    sandbox.execute("echo kept > file")

    # Reconnect to existing sandbox, or create a new one if it no longer exists.
    again = provider.get_or_create(sandbox_id=sandbox.id)
    assert again.id == sandbox.id
    assert again.execute("cat file").output == "kept\n"
    other = keep(
        provider.get_or_create(
            sandbox_id="existing-id",
            labels={"customer": "acme", "thread-id": "a thread with spaces/and more"},
            ttl_seconds=3600,
            ttl_idle_seconds=600,
        )
    )
    assert other.id not in ("existing-id", sandbox.id)

    # Another provider, as in another process, finds the same sandbox.
    elsewhere = KubernetesProvider(
        KubernetesProviderConfig(mode=MODE, template_name=TEMPLATE, image=IMAGE, namespace=NAMESPACE)
    )
    assert elsewhere.reconnect(sandbox.id).execute("cat file").output == "kept\n"
    try:
        elsewhere.reconnect("a1b2c3d4")
    except SandboxNotFoundError as error:
        assert error.original_exc is not None
    else:
        raise AssertionError("there is no such sandbox")

    # List all managed sandboxes.
    assert {sandbox.id, other.id} <= {sb.id for sb in provider.list().sandboxes}
    assert {sandbox.id, other.id} <= {sb.id for sb in provider.list()}, "it can be iterated over as well"
    assert {sandbox.id, other.id} <= {sb.id for sb in provider.list(status="running").sandboxes}
    assert provider.list(status="warm").sandboxes == []
    response = provider.list(labels={"customer": "acme"})
    for sb in response.sandboxes:
        print(sb.id, sb.status, sb.created_at)
    [found] = [sb for sb in response.sandboxes if sb.id == other.id]
    assert found.status == "running"
    assert found.namespace == NAMESPACE
    assert found.labels["langchain-kubernetes.bitkaio.com/customer"] == "acme"
    assert found.labels["langchain-kubernetes.bitkaio.com/managed-by"] == "langchain-kubernetes"
    assert found.thread_id == "a thread with spaces/and more"
    assert found.created_at.startswith("20")
    prefix = "langchain-kubernetes.bitkaio.com/"
    assert found.annotations[prefix + "created-at"] == found.created_at
    assert found.annotations[prefix + "last-activity"] == found.last_activity
    assert datetime.fromisoformat(found.last_activity) >= datetime.fromisoformat(found.created_at)
    assert found.annotations[prefix + "ttl-seconds"] == "3600"
    assert found.annotations[prefix + "ttl-idle-seconds"] == "600"
    assert sandbox.id not in [sb.id for sb in response.sandboxes]
    next_page = provider.list(cursor=response.cursor)
    assert next_page.cursor is None

    # Operational methods.
    result = provider.cleanup()
    assert sandbox.id not in result.deleted
    assert result.kept >= 2
    stats = provider.stats()
    assert stats.running >= 2
    assert stats.total >= 2
    assert stats.thread_ids >= 1

    async def main():
        mine = await provider.aget_or_create(sandbox_id=sandbox.id)
        assert mine.id == sandbox.id
        assert sandbox.id in [sb.id for sb in (await provider.alist()).sandboxes]
        assert sandbox.id not in (await provider.acleanup()).deleted
        assert (await provider.astats()).running >= 2
        assert (await provider.areconnect(sandbox.id)).id == sandbox.id
        await provider.adelete(sandbox_id=other.id)
        await provider.adelete(sandbox_id=other.id)

    asyncio.run(main())
    assert sandbox.id not in provider.cleanup(max_idle_seconds=3600).deleted
    time.sleep(2)
    assert sandbox.id in provider.cleanup(max_idle_seconds=1).deleted
    provider.delete(sandbox_id=sandbox.id)
    assert {sandbox.id, other.id}.isdisjoint(sb.id for sb in provider.list(status="running"))
finally:
    for sandbox_id in made:
        provider.delete(sandbox_id=sandbox_id)
