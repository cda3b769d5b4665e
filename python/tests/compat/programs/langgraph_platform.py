"""README section "With langgraph dev / LangGraph Platform": no own checkpointer, and the id in the graph's state."""

from langchain_kubernetes import KubernetesProviderConfig, KubernetesSandboxManager

manager = KubernetesSandboxManager(
    KubernetesProviderConfig(mode=MODE, template_name=TEMPLATE, image=IMAGE, namespace=NAMESPACE),
    ttl_idle_seconds=1800,
    default_labels={"app": "my-agent"},
)

# The platform provides the checkpointer.
graph = manager.create_agent(llm)

try:
    config = {"configurable": {"thread_id": THREAD}}
    first = graph.invoke({"messages": [("user", "run echo iris > data")]}, config)
    assert first["sandbox_id"], "create_agent() stores the sandbox_id as a field in graph state"
    second = graph.invoke({"messages": [("user", "run cat data")]}, config)
    assert second["messages"][-1].text.startswith("iris\n")
    assert second["sandbox_id"] == first["sandbox_id"]

    from langchain_kubernetes import KubernetesProvider

    provider = KubernetesProvider(
        KubernetesProviderConfig(mode=MODE, template_name=TEMPLATE, image=IMAGE, namespace=NAMESPACE)
    )
    listed = provider.list(labels={"app": "my-agent"}).sandboxes
    assert first["sandbox_id"] in [sandbox.id for sandbox in listed]
finally:
    manager.shutdown()
