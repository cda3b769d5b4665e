"""README section "One-shot usage"."""

from deepagents import create_deep_agent
from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

provider = KubernetesProvider(
    KubernetesProviderConfig(mode=MODE, template_name=TEMPLATE, image=IMAGE, namespace=NAMESPACE)
)

sandbox = provider.get_or_create()
try:
    agent = create_deep_agent(model=llm, backend=sandbox)
    fibonacci = "python3 -c 'a, b = 1, 1; [(print(a), (a := a + b), (b := a - b)) for _ in range(6)]'"
    result = agent.invoke({"messages": [("user", f"run {fibonacci}")]})
    assert result["messages"][-1].text.startswith("1\n2\n3\n5\n8\n13\n"), result
finally:
    provider.delete(sandbox_id=sandbox.id)
