"""README section "Thread-scoped (production)", and "Horizontal scaling and sticky sessions", which aren't needed."""

import asyncio

from deepagents import create_deep_agent
from k8s_agent_sandbox import SandboxClient
from langchain_core.runnables import RunnableConfig
from langchain_k8s import create_kubernetes_sandbox

client = SandboxClient()


async def make_agent(config: RunnableConfig):
    """Graph factory — each thread_id gets its own sandbox."""
    thread_id = config["configurable"]["thread_id"]
    backend = create_kubernetes_sandbox(
        client=client,
        claim_name=f"sandbox-{thread_id}",
        template_name=TEMPLATE,
        namespace=NAMESPACE,
        labels={"thread_id": thread_id},
    )
    return create_deep_agent(
        model=llm,
        backend=backend,
    )


async def main():
    # Turn 1 — user starts a new conversation, sandbox is created
    config = {"configurable": {"thread_id": THREAD}}
    agent = await make_agent(config)
    await agent.ainvoke({"messages": [{"role": "user", "content": "run echo kept > script"}]})

    # Turn 2 — user continues the conversation, same sandbox is reused, here by ten replicas at once
    agents = await asyncio.gather(*[make_agent(config) for _ in range(10)])
    for agent in agents:
        result = await agent.ainvoke({"messages": [{"role": "user", "content": "run cat script"}]})
        assert result["messages"][-1].text.startswith("kept\n")


try:
    asyncio.run(main())
finally:
    # Clean up when the conversation ends
    client.delete_sandbox(f"sandbox-{THREAD}", NAMESPACE)

# A name that no claim can have works too, and means the same sandbox each time.
odd = f"Sandbox of {THREAD}!"
one = create_kubernetes_sandbox(client=client, claim_name=odd, template_name=TEMPLATE, namespace=NAMESPACE)
try:
    one.execute("echo odd > file")
    two = create_kubernetes_sandbox(client=client, claim_name=odd, template_name=TEMPLATE, namespace=NAMESPACE)
    assert two.execute("cat file").output == "odd\n"
finally:
    client.delete_sandbox(odd, NAMESPACE)
