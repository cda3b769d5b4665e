"""README section "Connection modes"."""

from langchain_k8s import KubernetesSandbox

# Production — cluster Gateway
backend = KubernetesSandbox(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
    gateway_name=GATEWAY,
    gateway_namespace=NAMESPACE,
)
with backend:
    assert backend.execute("echo by gateway").output == "by gateway\n"

# Development — automatic port-forward
backend = KubernetesSandbox(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
)
with backend:
    assert backend.execute("echo hi").output == "hi\n"

# Advanced — existing port-forward or in-cluster routing
backend = KubernetesSandbox(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
    api_url=ROUTER,
)
with backend:
    assert backend.execute("echo by URL").output == "by URL\n"
    assert backend.write("/tmp/file", "x" * 2_000_000).error is None
    assert backend.execute("wc -c < /tmp/file").output == "2000000\n"

# A URL wins over a Gateway, as in langchain-k8s, and an explicit mode wins over both.
with KubernetesSandbox(template_name=TEMPLATE, namespace=NAMESPACE, api_url=ROUTER, gateway_name="missing") as backend:
    assert backend.execute("echo hi").output == "hi\n"
for mode in ("exec", "tunnel"):
    with KubernetesSandbox(
        template_name=TEMPLATE, namespace=NAMESPACE, api_url="http://127.0.0.1:9", connection_mode=mode
    ) as backend:
        assert backend.execute("echo hi").output == "hi\n"

# Nothing listens there: the error says where it tried to connect.
backend = KubernetesSandbox(template_name=TEMPLATE, namespace=NAMESPACE, api_url="http://127.0.0.1:9")
try:
    said = backend.execute("echo hi")
    assert said.exit_code != 0, said
    assert "127.0.0.1:9" in said.output, said
finally:
    backend.stop()
