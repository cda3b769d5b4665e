"""README section "Factory Pattern"."""

from deepagents import create_deep_agent
from langchain_agent_sandbox import create_sandbox_backend_factory
from langgraph.checkpoint.memory import MemorySaver

factory = create_sandbox_backend_factory(
    template_name=TEMPLATE,
    namespace=NAMESPACE,
    root_dir="/workspace",
)

# Pass factory to create_deep_agent
agent = create_deep_agent(model=llm, backend=factory, checkpointer=MemorySaver())


def said(text, thread):
    config = {"configurable": {"thread_id": thread}}
    return agent.invoke({"messages": [("user", text)]}, config)["messages"][-1].text


# A thread has a sandbox of its own.
said("run echo one > file", THREAD + "1")
assert said("run cat file", THREAD + "1").startswith("one\n")
assert "No such file" in said("run cat file", THREAD + "2")

# Without a thread, and called as Deep Agents did before 0.7, it has one for itself.
backend = factory(None)
backend.execute("echo mine > file")
assert factory(None).execute("cat file").output == "mine\n"
assert backend.read("/file") == "1: mine"
backend.close()
