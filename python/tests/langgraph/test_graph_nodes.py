"""Nodes for custom graphs."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, TypedDict

import pytest
from deepagents import create_deep_agent
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from obedient import on, said, told

import podbay
from podbay.langgraph import MissingThread


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]
    sandbox_id: str | None


def invoke(graph, how, order, thread):
    if how == "sync":
        return graph.invoke(told(order), on(thread))
    return asyncio.run(graph.ainvoke(told(order), on(thread)))


@pytest.fixture(params=["sync", "async"])
def how(request):
    return request.param


def test_an_agent_in_one_node(manager, model, how):
    graph = StateGraph(State)
    graph.add_node("agent", manager.create_agent_node(model))
    graph.add_edge(START, "agent").add_edge("agent", END)
    graph = graph.compile(checkpointer=MemorySaver())
    first = invoke(graph, how, "run echo first > kept", "one")
    assert first["sandbox_id"] == manager.sandbox_id("one")
    assert len(first["messages"]) == 4, "question, call, result, answer: none of them twice"
    second = invoke(graph, how, "run cat kept", "one")
    assert said(second).startswith("first\n")
    assert len(second["messages"]) == 8


def test_a_setup_node_before_an_agent_of_ones_own(manager, model, how):
    graph = StateGraph(State)
    graph.add_node("setup", manager.create_setup_node())
    graph.add_node("agent", create_deep_agent(model, backend=manager.backend))
    graph.add_edge(START, "setup").add_edge("setup", "agent").add_edge("agent", END)
    graph = graph.compile(checkpointer=MemorySaver())
    first = invoke(graph, how, "hello", "one")
    assert first["sandbox_id"] == manager.sandbox_id("one")
    assert [listed.id for listed in manager.provider.list(labels=manager.labels)] == [manager.sandbox_id("one")]
    invoke(graph, how, "run echo first > kept", "one")
    assert said(invoke(graph, how, "run cat kept", "one")).startswith("first\n")


def test_a_setup_node_changes_the_state_only_when_it_has_to(manager):
    node = manager.create_setup_node(state_sandbox_key="computer")
    id_of_one = manager.sandbox_id("one")
    assert node.invoke({}, on("one")) == {"computer": id_of_one}
    assert node.invoke({"computer": id_of_one}, on("one")) == {}
    assert asyncio.run(node.ainvoke({"computer": "pb-old"}, on("one"))) == {"computer": id_of_one}


def test_nodes_want_a_thread(manager, model):
    with pytest.raises(MissingThread, match="setup node"):
        manager.create_setup_node().invoke({})
    with pytest.raises(MissingThread):
        asyncio.run(manager.create_agent_node(model).ainvoke(told("hello")))


def test_a_sandbox_is_found_by_its_id_or_made(manager, how):
    def get(sandbox_id=None):
        if how == "sync":
            return manager.get_or_reconnect(sandbox_id)
        return asyncio.run(manager.aget_or_reconnect(sandbox_id))

    first = get()
    assert first.write("/workspace/kept", "x").error is None
    again = get(first.id)
    assert again.id == first.id
    assert again.download_files(["/workspace/kept"])[0].content == b"x"
    assert manager.provider.delete(first.id)
    other = get(first.id)
    assert other.id != first.id
    assert other.execute("echo alive").output == "alive\n"


def test_shutdown_deletes_what_the_manager_made_and_nothing_else(manager, settings, how):
    from podbay.langgraph import SandboxManager

    with SandboxManager(tenant=manager.tenant, **settings) as other:
        others = other.get_or_reconnect().id
        mine = [manager.acquire("one").id, manager.get_or_reconnect().id]
        deleted = manager.shutdown() if how == "sync" else asyncio.run(manager.ashutdown())
        assert sorted(deleted) == sorted(mine)
        assert manager.shutdown() == []
        assert other.provider.reconnect(others).run("true").ok
        with pytest.raises((podbay.SandboxNotFound, podbay.PodGone)):
            manager.provider.reconnect(mine[0])


def test_cleanup_deletes_only_what_is_over(settings, how):
    from podbay.langgraph import SandboxManager

    # A pod's time runs while it starts, which takes a busy machine a while; a claim's begins even earlier.
    ttl = {"agent-sandbox": 20, "raw": 8}.get(settings.get("mode"), 2)
    with SandboxManager(**settings) as long, SandboxManager(ttl=ttl, **settings) as short:
        stays, goes = long.get_or_reconnect().id, short.get_or_reconnect().id
        deleted: set[str] = set()

        def over():
            try:
                short.provider.reconnect(goes)
            except (podbay.SandboxNotFound, podbay.PodGone):
                return True
            return False

        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            cleaned = short.cleanup() if how == "sync" else asyncio.run(short.acleanup())
            deleted |= set(cleaned.deleted)
            if over():
                break
            time.sleep(ttl / 20)
        assert over(), "its time was up, and cleanup was called"
        assert stays not in deleted
        assert long.provider.reconnect(stays).run("true").ok


def test_a_ready_provider_has_its_settings_already(settings):
    from podbay.langgraph import SandboxManager

    provider = podbay.Provider(**settings)
    with SandboxManager(provider=provider) as manager:
        assert manager.provider is provider
        assert settings["mode"] in repr(manager)
    with pytest.raises(podbay.ConfigError, match="image"):
        SandboxManager(provider=provider, image="x")
