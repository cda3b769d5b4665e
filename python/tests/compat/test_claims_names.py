"""Every public name of the packages for agent-sandbox exists, with its parameters and defaults."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
from pathlib import Path

import pytest
from claims_signatures import described, missing

import podbay
from podbay.compat import _claims, agentic_sandbox
from podbay.compat.k8s_agent_sandbox import SandboxClient
from podbay.compat.langchain_agent_sandbox import AgentSandboxBackend, create_sandbox_backend_factory
from podbay.compat.langchain_k8s import KubernetesSandbox, SandboxdBackend, create_kubernetes_sandbox
from podbay.compat.langchain_k8s.prefixes import allowed
from podbay.compat.langchain_kubernetes_agent_sandbox import KubernetesAgentSandbox

HERE = Path(__file__).parent
RECORDS = {
    "langchain_k8s-0.4.0": "langchain_k8s",
    "langchain_k8s-0.7.1": "langchain_k8s",
    "langchain_kubernetes_agent_sandbox-0.2.1": "langchain_kubernetes_agent_sandbox",
    "langchain_agent_sandbox-readme": "langchain_agent_sandbox",
}
"""The records of the originals. langchain-agent-sandbox was never published, so its record is what its README shows."""


OTHER = {
    "KubernetesSandbox.glob(path='/')": "langchain-k8s 0.7 changed this default to None, as Deep Agents did",
    "SandboxdBackend.__init__": "it always raises",
}
"""Intended differences, with the reason."""


@pytest.mark.parametrize("record", RECORDS)
def test_every_name_has_its_parameters_and_defaults(record):
    recorded = json.loads((HERE / f"{record}.json").read_text())
    assert recorded
    gone = missing(recorded, described(f"podbay.compat.{RECORDS[record]}"))
    assert [name for name in gone if not any(name.startswith(other) for other in OTHER)] == []


@pytest.mark.skipif(
    importlib.util.find_spec("langchain_k8s") is None,
    reason="langchain-k8s isn't installed; the record of its names is what counts",
)
def test_the_record_is_that_of_the_package():
    package = importlib.import_module("langchain_k8s")
    record = json.loads((HERE / f"langchain_k8s-{package.__version__}.json").read_text())
    assert described("langchain_k8s") == record


def test_nothing_is_done_before_it_has_to(monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    backend = KubernetesSandbox(template_name="t")
    assert backend.claim_name is None
    backend.stop()
    assert KubernetesSandbox(claim_name=b"kept").claim_name == "kept"
    assert AgentSandboxBackend.from_template("t").id
    assert callable(create_sandbox_backend_factory("t"))
    # An operation fails in its result, the lifecycle by an exception.
    assert backend.execute("true").exit_code != 0
    with pytest.raises(RuntimeError, match="kubeconfig"):
        backend.start()


def test_impossible_arguments_are_refused():
    for arguments in (
        {},
        {"sandbox": object(), "claim_name": "x"},
        {"template_name": "t", "connection_config": object(), "api_url": "http://x"},
        {"template_name": "t", "connection_mode": "carrier pigeon"},
        {"claim_name": ""},
    ):
        with pytest.raises(ValueError, match=r"provided|both|together|Unknown|empty"):
            KubernetesSandbox(**arguments)
    with pytest.raises(ValueError, match="absolute"):
        AgentSandboxBackend.from_template("t", root_dir="app")
    with pytest.raises(ValueError, match="LANGCHAIN_SANDBOX_TEMPLATE"):
        AgentSandboxBackend.from_template()
    with pytest.raises(ValueError, match="template_name"):
        create_kubernetes_sandbox(client=None, claim_name="x")
    with pytest.raises(podbay.ConfigError, match="use KubernetesSandbox"):
        SandboxdBackend(warmpool_name="x")
    with pytest.raises(TypeError, match="claim_name and a namespace"):
        KubernetesAgentSandbox(sandbox=object())


def test_what_asks_for_the_router_needs_a_key_or_says_how_to_do_without(monkeypatch):
    models = pytest.importorskip("k8s_agent_sandbox.models")
    configs = [
        models.SandboxDirectConnectionConfig(api_url="http://router"),
        models.SandboxGatewayConnectionConfig(gateway_name="g"),
    ]

    class Handle:
        claim_name, sandbox_id, namespace, connection_config = "c", "s", "n", None

    for config in configs:
        with pytest.raises(podbay.ConfigError, match=r"podbay keys.*connection_mode='exec'"):
            KubernetesSandbox(template_name="t", connection_config=config)
        handle = Handle()
        handle.connection_config = config
        for make in (KubernetesSandbox, KubernetesAgentSandbox):
            with pytest.raises(podbay.ConfigError, match=r"podbay keys.*connection_mode='exec'"):
                make(sandbox=handle)
            assert make(sandbox=handle, connection_mode="exec").id in ("c", "s")
            monkeypatch.setenv("PODBAY_CLUSTER_PRIVATE_KEY_FILE", "/a/key")
            assert make(sandbox=handle).id in ("c", "s")
            monkeypatch.delenv("PODBAY_CLUSTER_PRIVATE_KEY_FILE")
    for config in (models.SandboxLocalTunnelConnectionConfig(), models.SandboxInClusterConnectionConfig()):
        assert KubernetesSandbox(template_name="t", connection_config=config)


def test_connections_become_settings(monkeypatch):
    models = pytest.importorskip("k8s_agent_sandbox.models")
    monkeypatch.setenv("PODBAY_CLUSTER_PRIVATE_KEY_FILE", "/a/key")
    direct = {"connection": "direct", "router_url": "http://r"}
    gateway = {"connection": "gateway", "gateway_name": "g", "gateway_namespace": "n"}
    # As in the packages, a URL wins over a Gateway; an explicit mode wins over both.
    assert _claims.connection(api_url="http://r", gateway_name="g", gateway_namespace="n") == direct
    assert _claims.connection("gateway", api_url="http://r", gateway_name="g", gateway_namespace="n") == gateway
    assert _claims.connection("exec", api_url="http://r") == {"connection": "exec"}
    assert _claims.connection("tunnel", router_namespace="r") == {"connection": "tunnel", "router_namespace": "r"}
    assert _claims.connection("in-cluster") == {"connection": "in-cluster"}
    # What nobody asked for is left to Podbay's settings.
    assert _claims.connection() == _claims.connection(router_namespace="agent-sandbox-system") == {}
    assert _claims.connection(connection_config=models.SandboxLocalTunnelConnectionConfig()) == {}
    assert _claims.connection(connection_config=models.SandboxInClusterConnectionConfig()) == {}
    elsewhere = models.SandboxLocalTunnelConnectionConfig(router_namespace="elsewhere")
    assert _claims.connection(connection_config=elsewhere) == {"router_namespace": "elsewhere"}
    config = models.SandboxGatewayConnectionConfig(gateway_name="g", gateway_namespace="n")
    assert _claims.connection(connection_config=config) == gateway
    config = models.SandboxDirectConnectionConfig(
        api_url="https://r", extra_headers={"X-Team": "blue"}, client_cert=("/cert", "/key"), ca_cert="/ca"
    )
    assert _claims.connection(connection_config=config) == {
        "connection": "direct",
        "router_url": "https://r",
        "router_headers": {"X-Team": "blue"},
        "router_ca_file": "/ca",
        "router_client_cert_file": "/cert",
        "router_client_key_file": "/key",
    }
    for mode in ("direct", "gateway"):
        with pytest.raises(ValueError, match="is required when connection_mode"):
            _claims.connection(mode)


def test_server_port_is_the_stock_runtimes_port(monkeypatch):
    """Row 8: podbayd has a port of its own, so it matters where the stock runtime brings podbayd or leads to it."""
    models = pytest.importorskip("k8s_agent_sandbox.models")
    monkeypatch.setenv("PODBAY_CLUSTER_PRIVATE_KEY_FILE", "/a/key")
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    made = []
    native = podbay.Sandbox
    monkeypatch.setattr(podbay, "Sandbox", lambda **settings: made.append(settings) or native(**settings))
    configs = [
        models.SandboxDirectConnectionConfig(api_url="http://r", server_port=9000),
        models.SandboxGatewayConnectionConfig(gateway_name="g", server_port=9000),
        models.SandboxLocalTunnelConnectionConfig(server_port=9000),
        models.SandboxInClusterConnectionConfig(server_port=9000),
    ]

    class Handle:
        claim_name, sandbox_id, namespace, connection_config = "c", "s", "n", None

    for config in configs:
        KubernetesSandbox(template_name="t", connection_config=config)
        handle = Handle()
        handle.connection_config = config
        KubernetesSandbox(sandbox=handle)
        KubernetesAgentSandbox(sandbox=handle)
        assert AgentSandboxBackend(handle).execute("true").exit_code != 0
        made.append(SandboxClient(config).podbay_settings)
    KubernetesSandbox(template_name="t", server_port=9000)
    AgentSandboxBackend.from_template("t", server_port=9000)
    create_sandbox_backend_factory("t", server_port=9000)
    made.append(agentic_sandbox.SandboxClient("t", server_port=9000).podbay_settings)
    monkeypatch.setenv("LANGCHAIN_SERVER_PORT", "9000")
    AgentSandboxBackend.from_template("t")
    monkeypatch.setenv("LANGCHAIN_SERVER_PORT", "none")
    with pytest.raises(ValueError, match="LANGCHAIN_SERVER_PORT"):
        AgentSandboxBackend.from_template("t")
    assert [settings.get("runtime_port") for settings in made] == [9000] * (len(configs) * 5 + 5)
    # The default can't be told from no choice, so the setting's other sources decide.
    assert _claims.connection(server_port=8888) == {}
    # Podbay's error says what is wrong with this one.
    assert _claims.connection(server_port=0) == {"runtime_port": 0}


def test_a_handle_with_a_routers_url_needs_no_rights(monkeypatch):
    """The Sandbox's name is all that the router needs; a claim on a warm pool has another."""
    models = pytest.importorskip("k8s_agent_sandbox.models")
    monkeypatch.setenv("PODBAY_CLUSTER_PRIVATE_KEY_FILE", "/a/key")

    class Handle:
        claim_name, sandbox_id, namespace = "claim", "pool-x7k2q", "n"
        connection_config = models.SandboxDirectConnectionConfig(api_url="http://r")

    found = _claims.attachment(Handle())
    assert (found["id"], found["sandbox_names"]) == ("claim", {"claim": "pool-x7k2q"})
    assert (found["connection"], found["router_url"], found["namespace"]) == ("direct", "http://r", "n")
    # By another channel the cluster is asked.
    assert "sandbox_names" not in _claims.attachment(Handle(), "exec")
    cold = Handle()
    cold.sandbox_id = "claim"
    assert "sandbox_names" not in _claims.attachment(cold)

    # A cluster that Podbay can't use isn't needed either.
    class Configuration:
        host, api_key, ssl_ca_cert = "https://api", {}, None

    class Helper:
        injected_api_client = type("Client", (), {"configuration": Configuration})

    Handle.k8s_helper = Helper
    assert _claims.attachment(Handle())["router_only"] is True
    with pytest.raises(podbay.ConfigError, match="no bearer token"):
        _claims.attachment(Handle(), "exec")


def test_prefixes_are_resolved_paths():
    """Row 106: under a virtual root Podbay's prefixes are virtual paths, those of langchain-k8s resolved ones."""
    assert allowed(None, "/tmp", offloads=True) is None
    assert allowed(["/tmp/"], "/tmp", offloads=False) == ["/"]
    assert allowed(["/"], "/tmp", offloads=False) == ["/"]
    assert allowed(["/tmp/src/", "/etc"], "/tmp", offloads=True) == ["/src", "/large_tool_results"]
    assert allowed(["/tmp/src/"], None, offloads=False) == ["/tmp/src"]
    # Nothing is allowed, which isn't the same as no limit.
    [nowhere] = allowed(["/tmpfoo"], "/tmp", offloads=False)
    assert len(nowhere) == 33


def test_a_tilde_is_rejected_under_a_virtual_root(monkeypatch):
    """Row 111: langchain-k8s promises it. To Podbay it would be a name; nothing is asked of the cluster."""
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    backend = KubernetesSandbox(template_name="t", virtual_mode=True)

    async def asynchronous():
        return [
            await backend.als("~"),
            await backend.aread("~/a"),
            await backend.awrite("~/a", ""),
            await backend.aedit("~/a", "b", "c"),
            await backend.adelete("~/a"),
            await backend.aglob("*", "~root"),
            await backend.agrep("x", "~"),
        ]

    rejected = [
        backend.ls("~"),
        backend.read("~/a"),
        backend.write("~/a", ""),
        backend.edit("~/a", "b", "c"),
        backend.delete("~/a"),
        backend.glob("*", "~root"),
        backend.grep("x", "~"),
        *asyncio.run(asynchronous()),
    ]
    paths = ["~", "~/a", "~/a", "~/a", "~/a", "~root", "~"] * 2
    assert [result.error for result in rejected] == [f"Path traversal not allowed: {path!r}" for path in paths]
    assert backend.upload_files([("~/a", b"")])[0].error == backend.download_files(["~/a"])[0].error == "invalid_path"
    # Elsewhere, and without a virtual root, it is a name, so the cluster is asked.
    assert "kubeconfig" in backend.read("/~").error
    assert "kubeconfig" in KubernetesSandbox(template_name="t").read("~/a").error


def test_names_of_claims():
    assert _claims.claim_id(b"kept") == _claims.claim_id("kept") == "kept"
    assert _claims.claim_id("a thread!") == _claims.claim_id("a thread!") != _claims.claim_id("b thread!")
    assert _claims.claim_id("x" * 64).startswith("pb-")


def test_clusters_of_sdk_clients():
    class Configuration:
        host, api_key, ssl_ca_cert = "https://api", {"authorization": "Bearer secret"}, "/ca"

    class Helper:
        class injected_api_client:  # noqa: N801
            configuration = Configuration

    class Client:
        k8s_helper = Helper

    assert _claims.sdk_settings(Client) == {"api_url": "https://api", "token": "secret", "ca_file": "/ca"}
    assert _claims.sdk_settings(None) == {}
    Configuration.api_key = {}
    with pytest.raises(podbay.ConfigError, match="KUBECONFIG"):
        _claims.sdk_settings(Client)


def test_operations_are_spans(sandbox, monkeypatch):
    """Row 103: the SDK's tracer_config, with the program's own TracerProvider."""
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from podbay.compat.k8s_agent_sandbox.models import SandboxTracerConfig
    from podbay.compat.k8s_agent_sandbox.sandbox import Sandbox
    from podbay.compat.k8s_agent_sandbox.tracing import Tracing

    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    assert Tracing(SandboxTracerConfig()).tracer is None
    traced = Sandbox(sandbox, "n", tracing=Tracing(SandboxTracerConfig(enable_tracing=True, trace_service_name="mine")))
    assert traced.commands.run("echo secret; exit 3").exit_code == 3
    traced.files.write("a", "text")
    assert traced.files.read("a") == b"text"
    assert traced.files.exists("a")
    assert len(traced.files.list(".")) == 1
    traced.files.delete("a")
    with pytest.raises(podbay.NotFound):
        traced.files.read("a")
    found = [(span.name, dict(span.attributes), bool(span.events)) for span in spans.get_finished_spans()]
    path = {"sandbox.file.path": "a"}
    assert found == [
        ("mine.run", {"sandbox.command.executable": "echo", "sandbox.exit_code": 3}, False),
        ("mine.write", {**path, "sandbox.file.size": 4}, False),
        ("mine.read", {**path, "sandbox.file.size": 4}, False),
        ("mine.exists", {**path, "sandbox.file.exists": True}, False),
        ("mine.list", {"sandbox.file.path": ".", "sandbox.file.count": 1}, False),
        ("mine.delete", path, False),
        # The exception is an event of the span.
        ("mine.read", path, True),
    ]


def test_failed_transfers_have_codes(monkeypatch, caplog):
    """Row 97: langchain-agent-sandbox's own codes; the reason is in the log."""
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    backend = AgentSandboxBackend.from_template("t")
    [sent] = backend.upload_files([("/a", b"x")])
    [fetched] = backend.download_files(["/a"])
    assert (sent.error, fetched.error) == ("upload_failed", "download_failed")
    found = [(record.name, record.levelname) for record in caplog.records]
    assert found == [("langchain_agent_sandbox.backend", "ERROR")] * 2


def test_a_client_forgets_what_has_ended(monkeypatch):
    """A client that lives as long as its server remembered every sandbox that was ended by its handle."""

    class Native:
        made = 0
        created = True

        def __init__(self, **settings):
            Native.made += 1
            self.id = settings.get("id") or f"pb-{Native.made}"

        def open(self):
            return self

        def disconnect(self):
            pass

        def destroy(self):
            deleted.append(self.id)
            return True

    deleted = []
    monkeypatch.setattr(podbay, "Sandbox", Native)
    client = SandboxClient()
    for _ in range(3):
        client.create_sandbox(warmpool="p").terminate()
    assert (client._active, client._unnamed) == ({}, set())
    # One whose connection was closed exists, and is deleted with all others.
    unnamed, named = client.create_sandbox(warmpool="p"), client.create_sandbox(warmpool="p", claim_name="kept")
    unnamed.close_connection()
    named.close_connection()
    assert client.list_active_sandboxes() == []
    deleted.clear()
    client.delete_all()
    assert sorted(deleted) == sorted([unnamed.sandbox_id, "kept"])
    assert (client._active, client._unnamed) == ({}, set())
    # A handle that is closed late doesn't hide the one that took its place.
    first = client.get_sandbox("kept")
    second = client.create_sandbox(template="t", claim_name="kept", adopt_existing=True)
    first.terminate()
    assert client.list_active_sandboxes() == [("default", "kept")]
    second.terminate()
    assert client.list_active_sandboxes() == []
