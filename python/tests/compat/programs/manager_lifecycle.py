"""README section "KubernetesSandboxManager (LangGraph integration)": nodes, get_or_reconnect, cleanup, shutdown."""

import asyncio
from typing import Annotated, TypedDict

from langchain_core.messages import AnyMessage
from langchain_kubernetes import KubernetesProviderConfig, KubernetesSandboxManager
from langchain_kubernetes.manager import DEFAULT_SANDBOX_STATE_KEY
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import END, StateGraph
from langgraph.graph.message import add_messages

config = KubernetesProviderConfig(mode=MODE, template_name=TEMPLATE, image=IMAGE, namespace=NAMESPACE)
manager = KubernetesSandboxManager(
    config,
    ttl_seconds=3600,
    ttl_idle_seconds=1800,
    default_labels={"project": "my-agent", "env": "prod"},
)


class AgentState(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    sandbox_id: str | None


def graph_of(*nodes):
    builder = StateGraph(AgentState)
    for (name, node), (after, _) in zip(nodes, [*nodes[1:], (END, None)], strict=True):
        builder.add_node(name, node)
        builder.add_edge(name, after)
    builder.set_entry_point(nodes[0][0])
    return builder.compile(checkpointer=MemorySaver())


def said(state):
    return state["messages"][-1].text


async def main():
    assert DEFAULT_SANDBOX_STATE_KEY == "sandbox_id"

    # One node that runs the agent.
    graph = graph_of(("agent", manager.create_agent_node(llm)))
    thread = {"configurable": {"thread_id": THREAD}}
    first = await graph.ainvoke({"messages": [("user", "run echo kept > file")]}, thread)
    assert first["sandbox_id"]
    second = await graph.ainvoke({"messages": [("user", "run cat file")]}, thread)
    assert said(second).startswith("kept\n")
    assert second["sandbox_id"] == first["sandbox_id"]

    # Lists name the thread of a sandbox that the manager created.
    [info] = [info for info in manager._provider.list() if info.id == first["sandbox_id"]]
    assert info.thread_id == THREAD
    assert info.annotations["langchain-kubernetes.bitkaio.com/ttl-seconds"] == "3600"
    assert info.annotations["langchain-kubernetes.bitkaio.com/ttl-idle-seconds"] == "1800"
    assert manager._provider.stats().thread_ids >= 1

    # "Lower-level: acquire a sandbox from state manually"
    sandbox = await manager.get_or_reconnect(first["sandbox_id"])
    assert sandbox.id == first["sandbox_id"]
    assert (await sandbox.aexecute("cat file")).output == "kept\n"
    new = await manager.get_or_reconnect(None)
    assert new.id != sandbox.id

    # "Stale sandbox_id after sandbox expiry": a new one replaces it, and the state gets its id.
    node = manager.create_agent_node(llm)
    stale = {"messages": [("user", "run echo fresh")], "sandbox_id": "deepagents-a1b2c3d4"}
    updates = await node(stale, {})
    assert said(updates).startswith("fresh\n")
    assert updates["sandbox_id"] != "deepagents-a1b2c3d4"
    # The sandbox named by the state is used.
    known = {"messages": [("user", "run cat file")], "sandbox_id": sandbox.id}
    updates = await node(known, {"configurable": {"thread_id": THREAD + "-other"}})
    assert said(updates).startswith("kept\n")
    assert "sandbox_id" not in updates

    # A setup node before an agent.
    setup = manager.create_setup_node(state_sandbox_key="sandbox_id")
    updates = await setup({"messages": [], "sandbox_id": None}, thread)
    assert updates == {"sandbox_id": first["sandbox_id"]}

    kept = await manager.acleanup()
    assert kept.deleted == [] or first["sandbox_id"] not in kept.deleted
    assert kept.kept >= 1
    await manager.ashutdown()
    try:
        await manager._provider.areconnect(first["sandbox_id"])
    except Exception as gone:
        assert type(gone).__name__ == "SandboxNotFoundError", repr(gone)
    else:
        raise AssertionError("ashutdown() deletes all sandboxes")

    # "Context manager — calls shutdown() on exit"
    async with KubernetesSandboxManager(config) as inner:
        temporary = await inner.get_or_reconnect(None)
        assert temporary.execute("echo here").output == "here\n"
    assert (await manager.get_or_reconnect(temporary.id)).id != temporary.id
    manager.shutdown()


try:
    asyncio.run(main())
finally:
    manager.shutdown()
