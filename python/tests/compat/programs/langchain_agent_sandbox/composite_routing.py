"""README section "Composite Routing", with backends in place of the functions that Deep Agents no longer takes."""

from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend, StoreBackend
from langchain_agent_sandbox import AgentSandboxBackend
from langgraph.store.memory import InMemoryStore

with AgentSandboxBackend.from_template(TEMPLATE, namespace=NAMESPACE) as sandbox:
    composite = CompositeBackend(
        default=StateBackend(),
        routes={
            "/sandbox/": sandbox,
            "/memories/": StoreBackend(namespace=lambda _: ("memories",)),
        },
    )

    agent = create_deep_agent(model=llm, backend=composite, store=InMemoryStore())
    assert composite.write("/sandbox/script.py", "print(1)\n").error is None
    assert sandbox.execute("python3 /app/script.py").output == "1\n"
    assert "print(1)" in composite.read("/sandbox/script.py").file_data["content"]
    result = agent.invoke({"messages": [("user", "hello")]})
    assert result["messages"][-1].text.startswith("You said")
