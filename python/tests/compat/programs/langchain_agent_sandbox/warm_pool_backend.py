"""README section "WarmPool Backend"."""

from deepagents import create_deep_agent
from langchain_agent_sandbox import WarmPoolBackend

# Expects a SandboxWarmPool to exist with matching template
with WarmPoolBackend.from_warmpool(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
    warmpool_name=POOL,  # Optional: explicit warmpool reference
) as backend:
    agent = create_deep_agent(model=llm, backend=backend)

    # Check adoption info
    info = backend.get_adoption_info()
    assert info["warmpool_name"] == POOL
    # It is true: whether the sandbox was ready depends on the pool.
    assert info["from_warmpool"] is (backend.execute("true").exit_code == 0 and launch_of(backend.id) == "warm")

    result = agent.invoke({"messages": [("user", "run echo hello")]})
    assert result["messages"][-1].text.startswith("hello\n")
