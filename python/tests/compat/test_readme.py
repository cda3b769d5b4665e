"""Programs written for langchain-kubernetes' documented raw mode, one for each section of its README.

Only the import is changed. MODE, IMAGE and NAMESPACE say where they run, THREAD is a name that nothing has, and `llm`
is a model that does as it is told.
"""

from __future__ import annotations

import gc
import os
import re
import uuid
from pathlib import Path

import pytest
from cluster_api import Api

PROGRAMS = Path(__file__).parent / "programs"
ANYWHERE = [
    "raw_quick_start",
    "one_shot",
    "fastapi_app",
    "langgraph_platform",
    "custom_prompt_and_tools",
    "manager_lifecycle",
    "provider_lifecycle",
    "execute_commands",
    "file_operations",
    "async_usage",
    "longer_lifetime",
]
ON_A_CLUSTER = ["raw_configuration", "never_runs", "warm_pool", "setup_script", "own_namespace"]


def run(program, place, model):
    text = (PROGRAMS / f"{program}.py").read_text()
    text, changed = re.subn(
        r"^(\s*)from langchain_kubernetes", r"\1from podbay.compat.langchain_kubernetes", text, flags=re.M
    )
    assert changed
    names = {"__name__": program, "llm": model, "THREAD": uuid.uuid4().hex, **place}
    exec(compile(text, f"{program}.py", "exec", dont_inherit=True), names)


def test_no_program_is_forgotten():
    assert sorted(ANYWHERE + ON_A_CLUSTER) == sorted(path.stem for path in PROGRAMS.glob("*.py"))


@pytest.mark.parametrize("program", ANYWHERE)
def test_it_runs(program, place, model):
    run(program, place, model)


@pytest.mark.parametrize("program", ON_A_CLUSTER)
def test_it_runs_on_a_cluster(program, cluster, model, monkeypatch):
    if program == "own_namespace":
        wide = os.environ.get("WIDE_KUBECONFIG")
        if wide is None:
            pytest.skip("WIDE_KUBECONFIG isn't set: no account that may make namespaces")
        monkeypatch.setenv("KUBECONFIG", wide)
        cluster = {**cluster, "NAMESPACE": Api().namespace}
    run(program, cluster, model)
    if program == "warm_pool":
        # A pool is meant to outlive the programs that use it.
        gc.collect()
        api = Api()
        api.delete(f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases/pb-pool-default")
        for pod in api.get(f"/api/v1/namespaces/{api.namespace}/pods?labelSelector=podbay.dev/pool")["items"]:
            api.delete(f"/api/v1/namespaces/{api.namespace}/pods/{pod['metadata']['name']}")


def test_the_security_defaults_are_in_force(cluster, model):
    """The README's "Security defaults", checked on the pod in the cluster."""
    from podbay.compat.langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

    provider = KubernetesProvider(
        KubernetesProviderConfig(mode="raw", namespace=cluster["NAMESPACE"], image=cluster["IMAGE"])
    )
    sandbox = provider.get_or_create(labels={"customer": "acme"})
    try:
        api = Api()
        pods = f"/api/v1/namespaces/{api.namespace}/pods?labelSelector=podbay.dev/sandbox%3D{sandbox.id}"
        [pod] = api.get(pods)["items"]
        spec = pod["spec"]
        assert pod["metadata"]["labels"]["langchain-kubernetes.bitkaio.com/customer"] == "acme"
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["runAsGroup"] == 1000
        context = spec["containers"][0]["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"]["drop"] == ["ALL"]
        seccomp = context.get("seccompProfile") or spec["securityContext"]["seccompProfile"]
        assert seccomp["type"] == "RuntimeDefault"
        net = pod["metadata"]["labels"]["podbay.dev/net"]
        policy = api.get(f"/apis/networking.k8s.io/v1/namespaces/{api.namespace}/networkpolicies/pb-net-{net}")
        assert policy["spec"]["podSelector"]["matchLabels"] == {"podbay.dev/net": net}
        assert sorted(policy["spec"]["policyTypes"]) == ["Egress", "Ingress"]
        assert not policy["spec"].get("egress")
        assert not policy["spec"].get("ingress")
    finally:
        provider.delete(sandbox_id=sandbox.id)
