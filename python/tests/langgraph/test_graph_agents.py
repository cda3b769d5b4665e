"""Agents with a sandbox for each thread."""

from __future__ import annotations

import asyncio
import time

import pytest
from blockbuster import blockbuster_ctx
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langgraph.checkpoint.memory import MemorySaver
from obedient import ObedientModel, on, said, told

import podbay
from podbay.langgraph import MissingThread, SandboxManager


def answers(sandbox):
    try:
        sandbox.hello()
    except podbay.PodbayError:
        return False
    return True


def ids(manager):
    return [listed.id for listed in manager.provider.list(labels=manager.labels)]


def test_a_thread_keeps_its_sandbox_and_has_it_for_itself(manager, model):
    agent = manager.create_agent(model, checkpointer=MemorySaver())
    assert said(agent.invoke(told("hello"), on("one"))) == "You said: hello"
    assert ids(manager) == [], "no tool was called, so nothing had to be made"
    assert agent.get_state(on("one")).values["sandbox_id"] == manager.sandbox_id("one")

    agent.invoke(told("run echo first > kept"), on("one"))
    again = agent.invoke(told("run cat kept"), on("one"))
    assert said(again).startswith("first\n")
    assert again["sandbox_id"] == manager.sandbox_id("one")
    assert "No such file" in said(agent.invoke(told("run cat kept"), on("two")))
    assert sorted(ids(manager)) == sorted([manager.sandbox_id("one"), manager.sandbox_id("two")])


def test_a_new_manager_finds_a_threads_sandbox_without_any_state(manager, model, settings):
    manager.create_agent(model).invoke(told("run echo still here > kept"), on("one"))
    other = SandboxManager(tenant=manager.tenant, **settings)
    assert said(other.create_agent(model).invoke(told("run cat kept"), on("one"))).startswith("still here\n")
    assert other.shutdown() == [], "it found a sandbox, and made none"


def test_tenants_with_threads_of_one_name_dont_meet(settings, model):
    with SandboxManager(tenant="a", **settings) as a, SandboxManager(tenant="b", **settings) as b:
        a.create_agent(model).invoke(told("run echo secret > kept"), on("one"))
        assert "No such file" in said(b.create_agent(model).invoke(told("run cat kept"), on("one")))


def test_nobody_reaches_another_threads_sandbox_by_the_state(manager, model):
    # Whoever can send input to a thread can write its state, and copying a thread copies it.
    agent = manager.create_agent(model, checkpointer=MemorySaver())
    agent.invoke(told("run echo secret > kept"), on("victim"))
    result = agent.invoke({**told("run cat kept"), "sandbox_id": manager.sandbox_id("victim")}, on("thief"))
    assert "No such file" in said(result)
    assert result["sandbox_id"] == manager.sandbox_id("thief")
    agent.update_state(on("thief"), {"sandbox_id": manager.sandbox_id("victim")})
    result = agent.invoke(told("run cat kept"), on("thief"))
    assert "No such file" in said(result)
    assert result["sandbox_id"] == manager.sandbox_id("thief")


def test_a_run_without_a_thread_is_refused_with_a_word_on_what_to_do(manager, model):
    agent = manager.create_agent(model)
    with pytest.raises(MissingThread, match=r"configurable.*thread_id"):
        agent.invoke(told("run true"))
    with pytest.raises(MissingThread, match=r"configurable.*thread_id"):
        asyncio.run(agent.ainvoke(told("run true")))
    with pytest.raises(RuntimeError):
        agent.invoke(told("run true"), on(""))


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_sandbox_that_ended_between_two_turns_is_replaced(manager, model, how):
    def turn(order):
        run = agent.invoke if how == "sync" else lambda *given: asyncio.run(agent.ainvoke(*given))
        return said(run(told(order), on("one")))

    agent = manager.create_agent(model, checkpointer=MemorySaver())
    turn("run echo first > kept")
    old = manager.acquire("one")
    assert manager.provider.delete(old.id)
    # A deleted pod still answers for a second or two.
    until = time.monotonic() + 20
    while answers(old):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert "No such file" in turn("run cat kept")
    assert turn("run echo second").startswith("second\n")


def test_subagents_work_in_the_threads_sandbox(manager, model):
    agent = manager.create_agent(model)
    agent.invoke(told("delegate run echo by a subagent > kept"), on("one"))
    assert said(agent.invoke(told("run cat kept"), on("one"))).startswith("by a subagent\n")


def test_nothing_blocks_the_event_loop_and_threads_run_side_by_side(manager, model):
    agent = manager.create_agent(model, checkpointer=MemorySaver())

    async def turn(thread):
        await agent.ainvoke(told(f"run echo {thread} > kept"), on(thread))
        return said(await agent.ainvoke(told("run cat kept"), on(thread)))

    async def turns():
        with blockbuster_ctx():
            return await asyncio.gather(*(turn(f"thread-{n}") for n in range(4)))

    assert [answer.split("\n")[0] for answer in asyncio.run(turns())] == [f"thread-{n}" for n in range(4)]
    assert len(ids(manager)) == 4


def test_many_first_calls_at_once_make_one_sandbox(manager, model):
    agent = manager.create_agent(model)

    async def turns():
        await asyncio.gather(*(agent.ainvoke(told(f"run echo {n} >> /workspace/kept"), on("one")) for n in range(8)))

    asyncio.run(turns())
    assert ids(manager) == [manager.sandbox_id("one")]
    assert sorted(said(agent.invoke(told("run cat kept"), on("one"))).split()[:8]) == [str(n) for n in range(8)]


def test_steps_stream_at_the_top(manager, model):
    agent = manager.create_agent(model)
    steps = [set(step) for step in agent.stream(told("run echo hi"), on("one"), stream_mode="updates")]
    assert {"model"} in steps
    assert {"tools"} in steps


def test_tokens_stream_at_the_top(manager):
    class Typist(ObedientModel):
        """Sends its answer word by word."""

        def _stream(self, messages, stop=None, run_manager=None, **kwargs):
            for word in self._answer(messages).text.split():
                yield ChatGenerationChunk(message=AIMessageChunk(word))

    agent = manager.create_agent(Typist())
    stream = agent.stream(told("hello you"), on("one"), stream_mode="messages")
    words = [chunk.text for chunk, _ in stream if isinstance(chunk, AIMessageChunk) and chunk.text]
    assert words == ["You", "said:", "hello", "you"]


def test_the_states_field_may_have_another_name(manager, model):
    agent = manager.create_agent(model, state_sandbox_key="computer")
    result = agent.invoke(told("hello"), on("one"))
    assert result["computer"] == manager.sandbox_id("one")
    assert "sandbox_id" not in result


def test_what_deep_agents_takes_is_forwarded(manager, model):
    from langchain.agents.middleware.types import AgentMiddleware

    seen = []

    class Spy(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            seen.append((request.system_message.text, [tool.name for tool in request.tools]))
            return handler(request)

    def shout(text: str) -> str:
        """Shouts."""
        return text.upper()

    manager.create_agent(model, system_prompt="Be brief.", tools=[shout], middleware=[Spy()]).invoke(
        told("hi"), on("one")
    )
    prompt, tools = seen[0]
    assert "Be brief." in prompt
    assert {"shout", "execute"} <= set(tools)
    with pytest.raises(podbay.ConfigError, match="backend"):
        manager.create_agent(model, backend=manager.backend)
