"""README sections "Config-based mode (convenience)" and "Context manager"."""

from deepagents import create_deep_agent
from langchain_k8s import KubernetesSandbox

backend = KubernetesSandbox(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
)
# The constructor doesn't touch the cluster.
assert backend.claim_name is None

agent = create_deep_agent(model=llm, backend=backend)
result = agent.invoke({"messages": [("user", "run echo $((6 * 7))")]})
assert result["messages"][-1].text.startswith("42\n")
first = backend.claim_name
assert first == backend.id

backend.stop()
backend.stop()

with KubernetesSandbox(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
) as backend:
    agent = create_deep_agent(model=llm, backend=backend)
    result = agent.invoke({"messages": [("user", "run echo hello")]})
    assert backend.claim_name not in (None, first)
    kept = backend.claim_name

# Both are gone.
for name in (first, kept):
    try:
        KubernetesSandbox(template_name=TEMPLATE, namespace=NAMESPACE, claim_name=name).start()
    except Exception as error:
        assert type(error).__name__ == "SandboxNotFoundError", error
    else:
        raise AssertionError(f"{name} still exists")
