"""README section "Connection modes"."""

from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

MODES = [
    {"connection_mode": "tunnel"},
    {"connection_mode": "gateway", "gateway_name": GATEWAY, "gateway_namespace": NAMESPACE},
    {"connection_mode": "direct", "api_url": ROUTER},
    # The mode decides, whatever else is set.
    {"connection_mode": "direct", "api_url": ROUTER, "gateway_name": "missing"},
    {"connection_mode": "tunnel", "api_url": "http://127.0.0.1:9"},
]

for parameters in MODES:
    provider = KubernetesProvider(
        KubernetesProviderConfig(mode="agent-sandbox", template_name=TEMPLATE, namespace=NAMESPACE, **parameters)
    )
    sandbox = provider.get_or_create()
    try:
        assert sandbox.execute("echo hi").output == "hi\n", parameters
        assert provider.reconnect(sandbox.id).execute("echo again").output == "again\n"
    finally:
        provider.delete(sandbox_id=sandbox.id)
