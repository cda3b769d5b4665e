"""Every public name of langchain-kubernetes exists, with its parameters and defaults."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
from signatures import described

import podbay
from podbay.compat import langchain_kubernetes as ours
from podbay.compat.langchain_kubernetes import (
    KubernetesProvider,
    KubernetesProviderConfig,
    KubernetesSandboxManager,
    _settings,
)
from podbay.compat.langchain_kubernetes.backends.agent_sandbox import AgentSandboxBackend
from podbay.compat.langchain_kubernetes.backends.protocol import KubernetesBackendProtocol
from podbay.compat.langchain_kubernetes.backends.raw import RawK8sBackend

RECORDED = json.loads((Path(__file__).parent / "langchain_kubernetes-0.4.0.json").read_text())

OTHER = {
    "backends.raw.RawK8sBackend.__init__": "took clients of the package kubernetes; `create` makes one",
    "backends.raw.RawK8sBackend.load_k8s_clients": "gave clients of the package kubernetes",
}
"""Intended differences, with the reason."""


def test_every_name_has_its_parameters_and_defaults():
    found = described(ours.__name__)
    expected = {name: what for name, what in RECORDED.items() if not any(name.startswith(other) for other in OTHER)}
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.skipif(
    importlib.util.find_spec("langchain_kubernetes") is None,
    reason="langchain-kubernetes isn't installed; the record of its names is what counts",
)
def test_the_record_is_that_of_the_package():
    assert described("langchain_kubernetes") == RECORDED


def test_nothing_that_was_exported_is_missing():
    assert set(ours.__all__) == {name for name in RECORDED if "." not in name}


def test_what_the_readme_names_and_the_package_lacked():
    # The original has neither get_or_reconnect nor an async pool_status.
    assert callable(KubernetesSandboxManager.get_or_reconnect)
    assert callable(KubernetesProvider.apool_status)


def test_impossible_configs_are_refused():
    with pytest.raises(ValueError, match="Unknown mode: 'docker'"):
        KubernetesProviderConfig(mode="docker")
    with pytest.raises(ValueError, match="template_name is required"):
        KubernetesProviderConfig()
    with pytest.raises(ValueError, match="profile's path"):
        KubernetesProvider(KubernetesProviderConfig(mode="raw", seccomp_profile="Localhost"))
    with pytest.raises(ValueError, match="setup_script"):
        KubernetesProvider(KubernetesProviderConfig(mode="local", setup_script="true"))


def test_agent_sandbox_mode_says_what_it_needs():
    config = KubernetesProviderConfig(template_name="python-sandbox-template")
    assert (config.mode, config.connection_mode) == ("agent-sandbox", "tunnel")
    for make in (KubernetesProvider, KubernetesSandboxManager):
        assert "agent-sandbox" in repr(make(config))
    for more, why in [
        ({"connection_mode": "gateway"}, "gateway_name is required"),
        ({"connection_mode": "direct"}, "api_url is required"),
        ({"connection_mode": "gateway", "gateway_name": "g"}, "connection_mode='exec'"),
        ({"connection_mode": "direct", "api_url": "http://router"}, "connection_mode='exec'"),
        ({"connection_mode": "carrier pigeon"}, "Unknown connection_mode"),
    ]:
        with pytest.raises(ValueError, match=why):
            KubernetesProvider(KubernetesProviderConfig(template_name="t", **more))
    assert KubernetesProvider(KubernetesProviderConfig(template_name="t", connection_mode="exec", api_url="http://r"))
    with pytest.raises(TypeError, match="claim_name"):
        AgentSandboxBackend(client=object(), sandbox_name="x")


def test_server_port_is_the_stock_runtimes_port():
    """Row 8, in whatever way the connection goes."""
    for more in ({}, {"connection_mode": "exec"}):
        config = KubernetesProviderConfig(template_name="t", server_port=9000, **more)
        assert _settings.settings(config)["runtime_port"] == 9000
        assert KubernetesProvider(config)
    assert "runtime_port" not in _settings.settings(KubernetesProviderConfig(template_name="t"))


def test_a_command_is_passed_on_unless_it_only_waits():
    """Row 149: Podbay's own command waits better than the default."""
    assert "command" not in _settings.settings(KubernetesProviderConfig(mode="raw"))
    config = KubernetesProviderConfig(mode="raw", command=["tini", "--", "sleep", "infinity"])
    assert _settings.settings(config)["command"] == config.command
    assert KubernetesProvider(config)


def test_nothing_is_done_before_it_has_to(monkeypatch):
    # A module with a manager can be imported where there is no cluster.
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    config = KubernetesProviderConfig(mode="raw")
    assert "raw" in repr(KubernetesProvider(config))
    from obedient import ObedientModel

    assert KubernetesSandboxManager(config).create_agent(ObedientModel()) is not None


def test_applications_with_other_labels_have_other_sandboxes():
    # Otherwise two applications in one namespace would share the thread "1".
    config = KubernetesProviderConfig(mode="local", default_labels={"project": "a"})
    same = KubernetesSandboxManager(config), KubernetesSandboxManager(config)
    other = KubernetesSandboxManager(config, default_labels={"project": "b"})
    ids = [manager._threads.sandbox_id("1") for manager in (*same, other)]
    assert ids[0] == ids[1] != ids[2]


def test_errors_are_of_the_kinds_that_are_documented():
    from podbay.compat.langchain_kubernetes._provider_base import translated

    kinds = [
        (podbay.SandboxNotFound("x"), ours.SandboxNotFoundError),
        (podbay.PodGone("x"), ours.SandboxNotFoundError),
        (podbay.StartupTimeout("x"), TimeoutError),
        (podbay.StartupFailed("x"), RuntimeError),
        (podbay.PermissionDenied("x"), RuntimeError),
        (podbay.Unreachable("x"), RuntimeError),
    ]
    for error, kind in kinds:
        with pytest.raises(ours.SandboxError) as caught, translated():
            raise error
        assert isinstance(caught.value, kind), error
        assert caught.value.original_exc is error
        assert str(caught.value) == "x"
    with pytest.raises(ValueError, match="x"), translated():
        raise podbay.ConfigError("x")


def test_a_backend_of_ones_own_is_enough():
    """`KubernetesSandbox(backend=…)` with only the protocol's methods, and Deep Agents' scripts for the rest."""
    with podbay.Sandbox() as sandbox:
        native = RawK8sBackend(sandbox=sandbox, config=KubernetesProviderConfig(mode="local")).native

        @dataclasses.dataclass
        class Own:
            id: str = "mine"

            def execute(self, command, *, timeout=None):
                return native.execute(command, timeout=timeout)

            async def aexecute(self, command, *, timeout=None):
                return await native.aexecute(command, timeout=timeout)

            def upload_files(self, files):
                return native.upload_files(files)

            def download_files(self, paths):
                return native.download_files(paths)

            def cleanup(self):
                pass

        assert isinstance(Own(), KubernetesBackendProtocol)
        mine = ours.KubernetesSandbox(backend=Own())
        assert mine.id == "mine"
        assert mine.write("/workspace/a.txt", "one\ntwo\n").error is None
        assert str(mine.read("/workspace/a.txt")) == "one\ntwo"
        assert mine.edit("/workspace/a.txt", "two", "three").occurrences == 1
        assert [entry["path"] for entry in mine.ls_info("/workspace")] == ["/workspace/a.txt"]
        assert mine.grep_raw("three", path="/workspace")[0]["line"] == 2
        assert mine.glob_info("*.txt", path="/workspace")
