"""README section "To increase sandbox lifetime" and "Configuration options": per call beats manager beats config."""

import time

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig, KubernetesSandboxManager

# A sandbox may take many seconds of it to start on a busy machine.
SHORT = 15
TTL = "langchain-kubernetes.bitkaio.com/ttl-seconds"
IDLE_TTL = "langchain-kubernetes.bitkaio.com/ttl-idle-seconds"
config = KubernetesProviderConfig(
    mode=MODE,
    template_name=TEMPLATE,
    image=IMAGE,
    namespace=NAMESPACE,
    default_labels={"project": "lifetimes", "env": "dev"},
    ttl_seconds=SHORT,
)
provider = KubernetesProvider(config)
made = []


def listed():
    return {sandbox.id: sandbox for sandbox in provider.list(labels={"project": "lifetimes"})}


try:
    long = provider.get_or_create(ttl_seconds=86400, ttl_idle_seconds=3600, labels={"env": "prod"})
    made.append(long.id)
    short = provider.get_or_create()
    begun = time.monotonic()
    made.append(short.id)
    found = listed()
    assert found[long.id].labels["langchain-kubernetes.bitkaio.com/env"] == "prod"
    assert found[short.id].labels["langchain-kubernetes.bitkaio.com/env"] == "dev"
    assert (found[long.id].annotations[TTL], found[long.id].annotations[IDLE_TTL]) == ("86400", "3600")
    assert found[short.id].annotations[TTL] == str(SHORT)

    # The short one's time runs meanwhile.
    with KubernetesSandboxManager(config, ttl_seconds=7200, ttl_idle_seconds=1800) as manager:
        agent = manager.create_agent(llm)
        thread = {"configurable": {"thread_id": THREAD}}
        agent.invoke({"messages": [("user", "run echo kept > file")]}, thread)
        [mine] = [sandbox for sandbox in listed().values() if sandbox.thread_id == THREAD]
        assert (mine.annotations[TTL], mine.annotations[IDLE_TTL]) == ("7200", "1800")
        assert agent.invoke({"messages": [("user", "run cat file")]}, thread)["messages"][-1].text.startswith("kept\n")

    deleted = []
    until = begun + 20 + SHORT
    while time.monotonic() < until and any(sandbox.id == short.id for sandbox in provider.list(status="running")):
        deleted += provider.cleanup().deleted
        time.sleep(0.5)
    deleted += provider.cleanup().deleted
    assert long.id not in deleted
    assert long.execute("echo alive").output == "alive\n"
    new = provider.get_or_create(sandbox_id=short.id)
    made.append(new.id)
    assert new.id != short.id, "it was over, and a new one is provisioned"
finally:
    for sandbox_id in made:
        provider.delete(sandbox_id=sandbox_id)
