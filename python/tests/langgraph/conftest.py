"""Where the tests of graphs run: on this machine, and on the rig's cluster if there is one."""

from __future__ import annotations

import importlib.util
import os
import uuid
from pathlib import Path

import pytest

from patience import leave_to_soak, parameter

MISSING = None if importlib.util.find_spec("deepagents") else "deepagents isn't installed: pip install deepagents"
collect_ignore_glob = ["test_*.py"] if MISSING else []


def pytest_report_header() -> list[str]:
    return [f"podbay.langgraph: not tested, {MISSING}"] if MISSING else []


PROCESSES = {"test_fastapi_replicas", "test_graph_replicas", "test_langgraph_dev"}
"""Modules whose tests start processes that import all of LangChain, for seconds of processor time each."""

ANYWHERE = {
    "test_tenants_with_threads_of_one_name_dont_meet",
    "test_nobody_reaches_another_threads_sandbox_by_the_state",
    "test_a_run_without_a_thread_is_refused_with_a_word_on_what_to_do",
    "test_subagents_work_in_the_threads_sandbox",
    "test_steps_stream_at_the_top",
    "test_tokens_stream_at_the_top",
    "test_the_states_field_may_have_another_name",
    "test_what_deep_agents_takes_is_forwarded",
    "test_an_agent_in_one_node",
    "test_a_setup_node_before_an_agent_of_ones_own",
    "test_a_setup_node_changes_the_state_only_when_it_has_to",
    "test_nodes_want_a_thread",
    "test_what_goes_wrong_in_the_code_is_told",
    "test_output_is_bounded",
    "test_what_goes_wrong_before_the_code_is_told_too",
    "test_an_agents_virtual_files_are_seeded",
    "test_it_works_in_a_plain_tool_node",
}
"""Tests of graphs, their state and what a model is told: the same wherever the sandbox is."""


def repeats(item: pytest.Item) -> bool:
    """Whether a test does in one mode what it does in another."""
    mode = parameter(item, "settings")
    if item.path.parent != Path(__file__).parent or mode is None:
        return False
    if item.path.stem in PROCESSES:
        return mode != ("raw" if os.environ.get("PODBAY_RIG") else "local")
    if mode == "agent-sandbox" and parameter(item, "how") == "async":
        # The other modes have both.
        return True
    return mode != "local" and getattr(item, "originalname", None) in ANYWHERE


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_to_soak(config, items, repeats)


@pytest.fixture(scope="session", params=["local", "raw", "agent-sandbox"])
def settings(request):
    """The settings for each mode."""
    if request.param == "local":
        return {"mode": "local"}
    if not os.environ.get("PODBAY_RIG"):
        pytest.skip("PODBAY_RIG isn't set: no cluster (docs/testing.md)")
    if request.param == "raw":
        return {"mode": "raw", "image": "localhost/debian:1"}
    kubeconfig = os.environ.get("CLAIMS_KUBECONFIG")
    if not kubeconfig:
        pytest.skip("CLAIMS_KUBECONFIG isn't set: no cluster with agent-sandbox (docs/testing.md)")
    return {"mode": "agent-sandbox", "template_name": "python", "kubeconfig": kubeconfig}


@pytest.fixture
def manager(settings):
    """A manager whose sandboxes are deleted afterwards."""
    from podbay.langgraph import SandboxManager

    with SandboxManager(tenant=uuid.uuid4().hex, **settings) as manager:
        yield manager


@pytest.fixture
def model():
    """A model that follows the instructions in the last message."""
    from obedient import ObedientModel

    return ObedientModel()
