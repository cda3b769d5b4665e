"""Programs written for the packages for agent-sandbox, one for each section of their READMEs, on a real cluster.

Only imports are changed. TEMPLATE, POOL and NAMESPACE say where they run, ROUTER and GATEWAY lead to the router, THREAD
is a name that nothing has, `llm` is a model that does as it is told; `claims`, `live`, `launch_of` and `delete_pod_of`
look at the cluster without Podbay. They run by pods/exec and through the router, by a tunnel, at a URL and behind a
Gateway.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from cluster_api import Api
from router import CHANNELS

PROGRAMS = Path(__file__).parent / "programs"
PACKAGES = ["langchain_k8s", "langchain_kubernetes_agent_sandbox", "langchain_agent_sandbox", "langchain_kubernetes"]
IMPORTS = [*PACKAGES, "k8s_agent_sandbox", "agentic_sandbox"]
EVERY = sorted(path.relative_to(PROGRAMS).with_suffix("").as_posix() for path in PROGRAMS.glob("*/*.py"))

WITHOUT_A_PROGRAM = {
    "langchain_k8s": {
        "Installation": "nothing to run",
        "Prerequisites": "nothing to run",
        "Horizontal scaling: YAML for sticky sessions": "they aren't needed; thread_scoped.py shows it",
        "Configuration reference": "test_claims_names.py compares every parameter",
        "Development": "its own repository's scripts",
    },
    "langchain_kubernetes_agent_sandbox": {
        "Installation": "nothing to run",
        "Capabilities": "as_a_backend.py uses each of them",
    },
    "langchain_agent_sandbox": {
        "Installation": "nothing to run",
        "Sandbox Image Requirements": "there are none any more",
        "Development": "its own repository's scripts",
    },
    "langchain_kubernetes": {
        "all but the connection modes": "test_readme.py runs them in every mode",
    },
}
"""The sections of the READMEs that have no program of their own, with the reason."""


@pytest.fixture
def claims(monkeypatch):
    """The rig's cluster with agent-sandbox, as the tests' own account sees it; Podbay gets the one for claims.

    Skips the test if there is none.
    """
    kubeconfig = os.environ.get("CLAIMS_KUBECONFIG")
    if not (os.environ.get("PODBAY_RIG") and kubeconfig and os.environ.get("HARNESS_KUBECONFIG")):
        pytest.skip("CLAIMS_KUBECONFIG isn't set: no cluster with agent-sandbox (docs/testing.md)")
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    return Api.of_claims()


def test_every_package_has_programs():
    assert {name.split("/")[0] for name in EVERY} == set(PACKAGES) == set(WITHOUT_A_PROGRAM)


def programs_by_channels():
    """Each program by one of the channels, in turn; with `cargo xtask soak`, by all of them."""
    for number, program in enumerate(EVERY):
        if program.endswith(("/connection_modes", "/environment_variables")):
            # These say themselves how they connect.
            channels = ["exec"]
        elif os.environ.get("PODBAY_SOAK"):
            channels = CHANNELS
        else:
            channels = [CHANNELS[number % len(CHANNELS)]]
        for channel in channels:
            yield pytest.param(program, channel, id=f"{program}-{channel}")


@pytest.mark.parametrize(("program", "channel"), programs_by_channels())
def test_it_runs(program, channel, claims, router, model, monkeypatch):
    for name, value in router.environment(channel).items():
        monkeypatch.setenv(name, value)
    text = (PROGRAMS / f"{program}.py").read_text()
    text, changed = re.subn(rf"^(\s*)from ({'|'.join(IMPORTS)})\b", r"\1from podbay.compat.\2", text, flags=re.M)
    assert changed
    names = {
        "__name__": program,
        "llm": model,
        "THREAD": uuid.uuid4().hex,
        "TEMPLATE": "python",
        "POOL": "python",
        "NAMESPACE": claims.namespace,
        "ROUTER": router.url,
        "GATEWAY": router.gateway,
        "claims": claims.claims,
        "live": lambda: [claim["metadata"]["name"] for claim in claims.claims("")],
        "launch_of": lambda claim: claims.sandbox_of_claim(claim)["metadata"]["labels"]["agents.x-k8s.io/launch-type"],
        "delete_pod_of": claims.delete_pod_of_claim,
    }
    before = {claim["metadata"]["uid"] for claim in claims.claims("")}
    exec(compile(text, f"{program}.py", "exec", dont_inherit=True), names)
    if program != "langchain_agent_sandbox/factory_pattern":
        left = [claim for claim in claims.claims("") if claim["metadata"]["uid"] not in before]
        assert not [claim for claim in left if "deletionTimestamp" not in claim["metadata"]], "it left claims behind"


def api_client():
    """A client for the rig's cluster, of the package that the SDK uses."""
    return pytest.importorskip("kubernetes").config.new_client_from_config(os.environ["CLAIMS_KUBECONFIG"])


def connection_config(channel, router):
    """The SDK's configuration for a channel."""
    models = pytest.importorskip("k8s_agent_sandbox.models")
    return {
        "exec": models.SandboxLocalTunnelConnectionConfig,
        "direct": lambda: models.SandboxDirectConnectionConfig(api_url=router.url, extra_headers={"X-Team": "blue"}),
        "gateway": lambda: models.SandboxGatewayConnectionConfig(
            gateway_name=router.gateway, gateway_namespace=router.namespace
        ),
    }[channel]()


WITH_HANDLES = ["langchain_k8s", "langchain_kubernetes_agent_sandbox", "langchain_agent_sandbox"]


def packages_by_connection():
    """Each package with one of the SDK's connections; with `cargo xtask soak`, with all of them."""
    connections = ["exec", "direct", "gateway"]
    if os.environ.get("PODBAY_SOAK"):
        return list(itertools.product(WITH_HANDLES, connections))
    return list(zip(WITH_HANDLES, connections, strict=True))


@pytest.mark.parametrize(("package", "channel"), packages_by_connection())
def test_real_handles_of_the_sdk(package, channel, claims, router, model, monkeypatch):
    """The real k8s-agent-sandbox creates and deletes the sandbox; Podbay attaches to its claim by the same channel."""
    sdk = pytest.importorskip("k8s_agent_sandbox")
    if channel != "exec":
        monkeypatch.setenv("PODBAY_CLUSTER_PRIVATE_KEY_FILE", str(router.key_file))
    from deepagents import create_deep_agent

    from podbay.compat.langchain_agent_sandbox import AgentSandboxBackend
    from podbay.compat.langchain_k8s import KubernetesSandbox
    from podbay.compat.langchain_kubernetes_agent_sandbox import KubernetesAgentSandbox

    client = sdk.SandboxClient(connection_config(channel, router), api_client=api_client())
    handle = client.create_sandbox("python", claims.namespace)
    try:
        make = {
            "langchain_k8s": lambda: KubernetesSandbox(sandbox=handle),
            "langchain_kubernetes_agent_sandbox": lambda: KubernetesAgentSandbox(sandbox=handle),
            "langchain_agent_sandbox": lambda: AgentSandboxBackend(handle),
        }[package]
        backend = make()
        result = create_deep_agent(model=model, backend=backend).invoke({"messages": [("user", "run echo a | wc -c")]})
        assert result["messages"][-1].text.startswith("2\n")
        assert backend.write("/app/file" if package != "langchain_agent_sandbox" else "/file", "kept").error is None
        # Another backend for the same handle finds the same files, and a pod that was replaced.
        assert make().execute("cat /app/file").output == "kept"
        claims.delete_pod_of_claim(handle.claim_name)
        assert "gone" in backend.execute("true").output
        assert backend.execute("cat /app/file").exit_code == 1
    finally:
        handle.terminate()


# One package for all: they read a handle in the same place.
@pytest.mark.parametrize("package", WITH_HANDLES if os.environ.get("PODBAY_SOAK") else WITH_HANDLES[:1])
def test_a_real_handle_in_a_process_without_rights(package, claims, router, monkeypatch, tmp_path):
    """Row 10: a router's URL, the handle's names and a key are enough; the cluster's API is never asked."""
    sdk = pytest.importorskip("k8s_agent_sandbox")
    from podbay.compat.langchain_k8s import KubernetesSandbox

    monkeypatch.setenv("PODBAY_CLUSTER_PRIVATE_KEY_FILE", str(router.key_file))
    client = sdk.SandboxClient(connection_config("direct", router), api_client=api_client())
    handle = client.create_sandbox("python", claims.namespace)
    try:
        # Whoever has the rights brings podbayd there, which the image doesn't contain.
        owner = KubernetesSandbox(sandbox=handle)
        assert owner.write("/app/file", "kept").error is None
        kept = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        names = [package, handle.claim_name, handle.sandbox_id, handle.namespace, router.url]
        done = subprocess.run(
            [sys.executable, str(Path(__file__).parent / "no_rights.py"), *names],
            env={**kept, "PODBAY_CLUSTER_PRIVATE_KEY_FILE": str(router.key_file)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert owner.execute("cat /app/answer").output == "read kept"
    finally:
        handle.terminate()


def test_without_a_namespace_it_is_default(claims):
    """Row 164: the packages' default, whatever the kubeconfig's context says. The account has no rights there."""
    from podbay.compat.k8s_agent_sandbox import SandboxClient
    from podbay.compat.langchain_agent_sandbox import AgentSandboxBackend
    from podbay.compat.langchain_k8s import KubernetesSandbox, create_kubernetes_sandbox
    from podbay.compat.langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

    assert claims.namespace != "default"
    client = SandboxClient()
    for make in (
        KubernetesSandbox(warmpool_name="python").start,
        lambda: create_kubernetes_sandbox(client=client, claim_name="x", warmpool_name="python"),
        AgentSandboxBackend.from_template("python").__enter__,
        KubernetesProvider(KubernetesProviderConfig(template_name="python")).get_or_create,
        KubernetesProvider(KubernetesProviderConfig(mode="raw")).get_or_create,
        lambda: client.create_sandbox("python"),
    ):
        with pytest.raises(Exception, match=r'may not .* in the namespace "default"'):
            make()


def test_the_factory_adopts_a_claim_of_the_sdk(claims):
    sdk = pytest.importorskip("k8s_agent_sandbox")
    from podbay.compat.langchain_k8s import create_kubernetes_sandbox

    client, name = sdk.SandboxClient(api_client=api_client()), f"adopted-{uuid.uuid4().hex[:8]}"
    handle = client.create_sandbox("python", claims.namespace, claim_name=name)
    try:
        backend = create_kubernetes_sandbox(
            client=client, claim_name=name, warmpool_name="python", namespace=claims.namespace
        )
        assert (backend.id, backend.execute("echo hi").output) == (name, "hi\n")
        backend.stop()
    finally:
        client.delete_sandbox(handle.claim_name, claims.namespace)
