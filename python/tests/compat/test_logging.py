"""Row 102: what the replaced packages write to Python's log, by the loggers that they have."""

from __future__ import annotations

import asyncio
import logging

import pytest

import podbay
from podbay.compat.langchain_agent_sandbox import AgentSandboxBackend, SandboxPolicyWrapper
from podbay.compat.langchain_k8s import KubernetesSandbox
from podbay.compat.langchain_k8s.sandbox import AnnouncedSandbox
from podbay.compat.langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig, KubernetesSandboxManager
from podbay.compat.langchain_kubernetes.backends.raw import RawK8sBackend
from podbay.deepagents.conversations import SingleSandbox

CONTENT = "hunter2-hunter2"
"""What no log may contain: a file has it."""


@pytest.fixture
def records(caplog):
    """Returns what was logged since the last call: level, logger and message."""
    caplog.set_level(logging.DEBUG)

    def take():
        found = [(record.levelname, record.name, record.getMessage()) for record in caplog.records]
        assert not [each for each in found if CONTENT in each[2]]
        caplog.clear()
        return [each for each in found if each[1] != "asyncio"]

    return take


def test_langchain_k8s_logs_whole_commands_and_transfers(records):
    backend = KubernetesSandbox(template_name="t", command_timeout=60)
    backend._source = AnnouncedSandbox(podbay.Sandbox())
    logger, sandbox = "langchain_k8s.sandbox", backend.id
    long = f"echo {'x' * 200}"
    backend.execute(long)
    assert records() == [
        ("DEBUG", logger, f"execute: sandbox={sandbox} command={long!r} timeout=60"),
        ("INFO", logger, f"Sandbox started: {sandbox}"),
        ("DEBUG", logger, f"execute: sandbox={sandbox} exit_code=0 output_len=201 truncated=False"),
    ]
    asyncio.run(backend.aexecute("exit 3", timeout=5))
    assert records() == [
        ("DEBUG", logger, f"execute: sandbox={sandbox} command='exit 3' timeout=5"),
        ("DEBUG", logger, f"execute: sandbox={sandbox} exit_code=3 output_len=0 truncated=False"),
    ]
    # The tool of Deep Agents calls this one, which must not be logged twice.
    for offload in (False, True):
        backend.enable_capture_offload = offload
        backend.execute_with_offload("true", "/large_tool_results/x", max_inline_bytes=100)
        asyncio.run(backend.aexecute_with_offload("true", "/large_tool_results/x", max_inline_bytes=100))
        assert len(records()) == 4
    backend.upload_files([("/tmp/a\nb", CONTENT.encode()), ("relative", b"")])
    backend.download_files(["/tmp/a\nb", "/tmp/none"])
    backend.write("/tmp/c", CONTENT)
    backend.edit("/tmp/c", CONTENT, f"{CONTENT}.")
    assert backend.read("/tmp/c").file_data is not None
    assert records() == [
        ("DEBUG", logger, f"upload_files: sandbox={sandbox} file_count=2"),
        ("DEBUG", logger, rf"upload_files: sandbox={sandbox} path=/tmp/a\nb size={len(CONTENT)} OK"),
        ("DEBUG", logger, f"upload_files: sandbox={sandbox} path=relative failed (invalid_path)"),
        ("DEBUG", logger, f"download_files: sandbox={sandbox} file_count=2"),
        ("DEBUG", logger, rf"download_files: sandbox={sandbox} path=/tmp/a\nb size={len(CONTENT)} OK"),
        ("DEBUG", logger, f"download_files: sandbox={sandbox} path=/tmp/none failed (file_not_found)"),
    ]
    backend.start()
    backend.stop()
    assert records() == [("INFO", logger, f"Sandbox stopped: {sandbox}")]
    # It is another one now, which was never started.
    backend.stop()
    assert records() == []


def test_langchain_k8s_logs_what_its_rules_deny(records):
    backend = KubernetesSandbox(template_name="t", allow_prefixes=["/tmp/ok"])
    backend._source = SingleSandbox(podbay.Sandbox(allow_prefixes=["/tmp/ok"]))
    assert "not under any allowed prefix" in backend.write("/tmp/no", CONTENT).error
    [(level, logger, message)] = records()
    assert (level, logger) == ("DEBUG", "langchain_k8s.sandbox")
    assert message.startswith("write: denied path='/tmp/no' reason=")
    # A later failure isn't about that file.
    assert backend.read("/tmp/none").error
    assert records() == []
    backend._source.only.close()


def test_langchain_kubernetes_logs_the_beginning_of_commands(records):
    config = KubernetesProviderConfig(mode="local")
    provider = KubernetesProvider(config)
    sandbox = provider.get_or_create()
    raw, named = "langchain_kubernetes.backends.raw", "langchain_kubernetes.provider"
    assert records() == [("INFO", named, f"Created sandbox {sandbox.id} (mode=local, namespace=default)")]
    sandbox.execute(f"echo '{'x' * 200}'")
    sandbox.execute("true\nforged")
    sandbox.write("/workspace/c", CONTENT)
    sandbox.execute_with_offload("true", "/large_tool_results/x", max_inline_bytes=100)
    assert records() == [
        ("DEBUG", raw, f"exec [{sandbox.id}] echo '{'x' * 114}"),
        ("DEBUG", raw, rf"exec [{sandbox.id}] true\nforged"),
        ("DEBUG", raw, f"exec [{sandbox.id}] true"),
    ]
    provider.reconnect(sandbox.id)
    provider.delete(sandbox_id=sandbox.id)
    assert records() == [
        ("INFO", named, f"Reconnected to sandbox {sandbox.id} (mode=local)"),
        ("INFO", named, f"Deleted sandbox {sandbox.id}"),
    ]


def test_agents_of_langchain_kubernetes_log_their_commands(records, model):
    config = KubernetesProviderConfig(mode="local")
    with KubernetesSandboxManager(config) as manager:
        agent = manager.create_agent(model)
        said = {"messages": [{"role": "user", "content": "run echo hello"}]}
        agent.invoke(said, {"configurable": {"thread_id": "logged"}})
        sandbox = manager._threads.sandbox_id("logged")
        ran = [message for _, logger, message in records() if logger == "langchain_kubernetes.backends.raw"]
        assert ran == [f"exec [{sandbox}] echo hello"]
    assert ("INFO", "langchain_kubernetes.manager", f"Shutdown: deleted sandboxes {[sandbox]}") in records()


def test_langchain_kubernetes_logs_no_commands_of_claims(records, sandbox):
    """As in the original."""
    backend = RawK8sBackend(sandbox=sandbox, config=KubernetesProviderConfig(template_name="t"))
    assert backend.execute("true").exit_code == 0
    assert records() == []


def test_langchain_agent_sandbox_logs_failures(records, sandbox):
    backend = AgentSandboxBackend.from_template("t")
    backend._begin(SingleSandbox(sandbox), "/workspace", 60)
    logger = "langchain_agent_sandbox.backend"
    assert backend.execute("exit 3").exit_code == 3
    assert backend.write("/workspace/a", CONTENT).error is None
    assert backend.write("/workspace/a", CONTENT).error is not None
    assert records() == []
    assert backend.read("/workspace/none").error is not None
    assert backend.ls_info("/workspace/none") == []
    asyncio.run(backend.aread("/workspace/none"))
    found = records()
    assert [each[:2] for each in found] == [("WARNING", logger)] * 3
    assert all("/workspace/none" in message and sandbox.id in message for *_, message in found)

    def fails(*_):
        raise KeyError("full")

    assert SandboxPolicyWrapper(backend, audit_log=fails).execute("true").exit_code == 0
    assert [each[:2] for each in records()] == [("ERROR", logger)]
