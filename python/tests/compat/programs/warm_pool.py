"""README section "Warm pool configuration", raw mode."""

import time

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

provider = KubernetesProvider(
    KubernetesProviderConfig(
        mode=MODE,
        template_name=TEMPLATE,
        namespace=NAMESPACE,
        image=IMAGE,
        warm_pool_size=2,
        cpu_request="10m",
        memory_request="32Mi",
    )
)
sandbox = provider.get_or_create()
try:
    until = time.monotonic() + 60
    while (status := provider.pool_status()).available < 2 and time.monotonic() < until:
        time.sleep(0.2)
    assert status.available == 2
    assert status.target == 2

    begun = time.monotonic()
    warm = provider.get_or_create(labels={"customer": "acme"}, ttl_seconds=600)
    try:
        assert warm.execute("echo warm").output == "warm\n"
        assert provider.pool_status().active >= 1
        assert warm.id in [sandbox.id for sandbox in provider.list(labels={"customer": "acme"}, status="running")]
        print(f"a warm sandbox took {time.monotonic() - begun:.3f} s")
    finally:
        provider.delete(sandbox_id=warm.id)
finally:
    provider.delete(sandbox_id=sandbox.id)
