"""README sections "Production Mode (Gateway)" and "Direct Mode (In-Cluster / Custom Domain)"."""

from deepagents import create_deep_agent
from langchain_agent_sandbox import AgentSandboxBackend, WarmPoolBackend, create_sandbox_backend_factory

with AgentSandboxBackend.from_template(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
    gateway_name=GATEWAY,
    gateway_namespace=NAMESPACE,
) as backend:
    agent = create_deep_agent(model=llm, backend=backend)
    result = agent.invoke({"messages": [("user", "run echo hello")]})
    assert result["messages"][-1].text.startswith("hello\n")

with AgentSandboxBackend.from_template(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
    api_url=ROUTER,
) as backend:
    assert backend.write("/a", "x").error is None
    assert backend.execute("cat /app/a").output == "x"

with WarmPoolBackend.from_warmpool(TEMPLATE, namespace=NAMESPACE, warmpool_name=POOL, api_url=ROUTER) as backend:
    assert backend.execute("echo hi").output == "hi\n"

factory = create_sandbox_backend_factory(
    TEMPLATE, namespace=NAMESPACE, gateway_name=GATEWAY, gateway_namespace=NAMESPACE
)
backend = factory(None)
assert backend.execute("echo hi").output == "hi\n"
backend.close()
