"""README section "Ecosystem-standard mode (recommended)"."""

from deepagents import create_deep_agent
from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.models import SandboxLocalTunnelConnectionConfig
from langchain_k8s import KubernetesSandbox

client = SandboxClient(
    connection_config=SandboxLocalTunnelConnectionConfig(),
)
handle = client.create_sandbox(
    template=TEMPLATE,
    namespace=NAMESPACE,
)

backend = KubernetesSandbox(sandbox=handle)

agent = create_deep_agent(
    model=llm,
    system_prompt="You are a Python coding assistant with sandbox access.",
    backend=backend,
)

result = agent.invoke({"messages": [{"role": "user", "content": "run python3 -c 'print(sum(range(10)))'"}]})
assert result["messages"][-1].text.startswith("45\n"), result
assert backend.id == handle.claim_name

# Stopping leaves a sandbox that belongs to the caller.
backend.stop()
assert handle.status()[0] == "SandboxReady"
client.delete_sandbox(handle.claim_name, NAMESPACE)
assert handle.claim_name is None
