"""README section "Direct client"."""

from agentic_sandbox import SandboxClient
from deepagents import create_deep_agent
from langchain_agent_sandbox import AgentSandboxBackend

with SandboxClient(template_name=TEMPLATE, namespace=NAMESPACE) as client:
    backend = AgentSandboxBackend(client, root_dir="/app")
    agent = create_deep_agent(model=llm, backend=backend)
    result = agent.invoke({"messages": [("user", "run echo hello | tr a-z A-Z")]})
    assert result["messages"][-1].text.startswith("HELLO\n"), result
    assert backend.id == client.claim_name

# With manage_client, the backend enters and leaves the client.
client = SandboxClient(template_name=TEMPLATE, namespace=NAMESPACE)
with AgentSandboxBackend(client, manage_client=True) as backend:
    assert backend.execute("echo hi").output == "hi\n"
assert client.claim_name is None
