"""README section "To increase sandbox lifetime" and "Configuration options": per call beats manager beats config."""

import time

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig, KubernetesSandboxManager

# On a busy machine, seconds of it pass before the first answer.
SHORT = 15
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
try:
    long = provider.get_or_create(ttl_seconds=86400, ttl_idle_seconds=3600, labels={"env": "prod"})
    made.append(long.id)
    short = provider.get_or_create()
    made.append(short.id)
    found = {sandbox.id: sandbox for sandbox in provider.list(labels={"project": "lifetimes"})}
    assert found[long.id].labels["langchain-kubernetes.bitkaio.com/env"] == "prod"
    assert found[short.id].labels["langchain-kubernetes.bitkaio.com/env"] == "dev"

    deleted = []
    until = time.monotonic() + 20 + SHORT
    while time.monotonic() < until and any(sandbox.id == short.id for sandbox in provider.list(status="running")):
        deleted += provider.cleanup().deleted
        time.sleep(0.2)
    deleted += provider.cleanup().deleted
    assert long.id not in deleted
    assert long.execute("echo alive").output == "alive\n"
    new = provider.get_or_create(sandbox_id=short.id)
    made.append(new.id)
    assert new.id != short.id, "it was over, and a new one is provisioned"

    with KubernetesSandboxManager(config, ttl_seconds=86400, ttl_idle_seconds=3600) as manager:
        agent = manager.create_agent(llm)
        thread = {"configurable": {"thread_id": THREAD}}
        agent.invoke({"messages": [("user", "run echo kept > file")]}, thread)
        time.sleep(2.5)
        manager.cleanup()
        assert agent.invoke({"messages": [("user", "run cat file")]}, thread)["messages"][-1].text.startswith("kept\n")
finally:
    for sandbox_id in made:
        provider.delete(sandbox_id=sandbox_id)
