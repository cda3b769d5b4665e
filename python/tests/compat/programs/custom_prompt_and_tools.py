"""README section "Custom system_prompt and tools"."""

from langchain_core.tools import tool
from langchain_kubernetes import KubernetesProviderConfig, KubernetesSandboxManager


@tool
def my_custom_tool(text: str) -> str:
    """Repeats the text."""
    return text


with KubernetesSandboxManager(
    KubernetesProviderConfig(mode=MODE, template_name=TEMPLATE, image=IMAGE, namespace=NAMESPACE)
) as manager:
    graph = manager.create_agent(
        llm,
        system_prompt="You are a data analyst. Always save outputs to /workspace/output/.",
        tools=[my_custom_tool],
    )
    config = {"configurable": {"thread_id": THREAD}}
    result = graph.invoke({"messages": [("user", "run mkdir -p /workspace/output && echo saved")]}, config)
    assert result["messages"][-1].text.startswith("saved\n")
