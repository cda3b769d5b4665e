"""Programs written for langchain-kubernetes, one for each section of its README, in every mode that it is about.

Only the import is changed. MODE, TEMPLATE, IMAGE and NAMESPACE say where they run, THREAD is a name that nothing has,
and `llm` is a model that does as it is told.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import re
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster_api import Api

import podbay

PROGRAMS = Path(__file__).parent / "programs"
CLUSTER_MODES = ["raw", "agent-sandbox"]
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
EVERYWHERE = ["longer_lifetime", "manager_lifecycle", "provider_lifecycle"]
"""Programs about what each mode does in its own way. The others use what they get, in one cluster mode or the other."""
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


def programs_by_place():
    """Each program on this machine and in one of the cluster modes, in turn; with `cargo xtask soak`, in both."""
    for number, program in enumerate(ANYWHERE):
        both = program in EVERYWHERE or os.environ.get("PODBAY_SOAK")
        for place in ["local", *(CLUSTER_MODES if both else [CLUSTER_MODES[number % 2]])]:
            yield pytest.param(program, place, id=f"{program}-{place}")


@pytest.mark.parametrize(("program", "place"), programs_by_place(), indirect=["place"])
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


def test_the_pod_is_as_configured(cluster):
    """Rows 147, 149, 153, 154, 158 and 162: what no program of the README can see from inside of a pod."""
    from podbay.compat.langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

    config = KubernetesProviderConfig(
        mode="raw",
        namespace=cluster["NAMESPACE"],
        image=cluster["IMAGE"],
        image_pull_secrets=["registry"],
        service_account="default",
        command=["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"],
        extra_annotations={"example.com/owner": "team-a"},
    )
    provider = KubernetesProvider(config)
    sandbox = provider.get_or_create()
    try:
        api = Api()
        pods = f"/api/v1/namespaces/{api.namespace}/pods?labelSelector=podbay.dev/sandbox%3D{sandbox.id}"
        [pod] = api.get(pods)["items"]
        assert pod["metadata"]["name"].startswith("pb-")
        assert [container["name"] for container in pod["spec"]["containers"]] == ["sandbox"]
        assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["spec"]["serviceAccountName"] == "default"
        assert pod["spec"]["containers"][0]["command"] == config.command
        assert sandbox.execute("echo hi").output == "hi\n"
        assert pod["metadata"]["annotations"]["example.com/owner"] == "team-a"
        assert pod["spec"]["containers"][0]["resources"]["limits"]["ephemeral-storage"] == "5Gi"
    finally:
        provider.delete(sandbox_id=sandbox.id)


def test_a_sandbox_that_is_starting_is_pending(cluster):
    """Row 58: every other status word is in a program."""
    from podbay.compat.langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

    waits = {
        "name": "wait",
        "image": cluster["IMAGE"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "5"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    provider = KubernetesProvider(
        KubernetesProviderConfig(
            mode="raw", namespace=cluster["NAMESPACE"], image=cluster["IMAGE"], init_containers=[waits]
        )
    )
    mine = {"test": uuid.uuid4().hex[:8]}
    with ThreadPoolExecutor() as threads:
        creation = threads.submit(provider.get_or_create, labels=mine)
        while not (found := provider.list(labels=mine, status="pending").sandboxes):
            assert not creation.done(), creation.result()
            time.sleep(0.05)
        sandbox = creation.result()
    try:
        assert [info.id for info in found] == [sandbox.id]
        assert [info.status for info in provider.list(labels=mine)] == ["running"]
        assert provider.list(labels=mine, status="pending").sandboxes == []
    finally:
        provider.delete(sandbox_id=sandbox.id)


def test_a_cluster_by_url_and_token(cluster, monkeypatch, tmp_path):
    """Rows 11 and 12: kube_api_url and kube_token in place of a kubeconfig."""
    from podbay.compat.langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

    known = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
    authority = tmp_path / "ca.pem"
    authority.write_bytes(base64.b64decode(known["clusters"][0]["cluster"]["certificate-authority-data"]))
    monkeypatch.setenv("KUBECONFIG", "/no/such/file")
    monkeypatch.setenv("PODBAY_CLUSTER_CA_FILE", str(authority))
    config = {"mode": "raw", "namespace": cluster["NAMESPACE"], "image": cluster["IMAGE"]}
    config |= {"kube_api_url": known["clusters"][0]["cluster"]["server"]}
    provider = KubernetesProvider(KubernetesProviderConfig(**config, kube_token=known["users"][0]["user"]["token"]))
    sandbox = provider.get_or_create()
    try:
        assert sandbox.execute("echo hi").output == "hi\n"
    finally:
        provider.delete(sandbox_id=sandbox.id)
    with pytest.raises(RuntimeError):
        KubernetesProvider(KubernetesProviderConfig(**config, kube_token="wrong")).list()


def test_a_context_is_chosen(cluster, tmp_path):
    """Row 13: the kubeconfig's current context leads nowhere, another one to the cluster."""
    known = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
    known["clusters"].append({"name": "nowhere", "cluster": {"server": "https://127.0.0.1:9"}})
    user = known["contexts"][0]["context"]["user"]
    known["contexts"].append({"name": "nowhere", "context": {"cluster": "nowhere", "user": user}})
    known["current-context"] = "nowhere"
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(known))
    with pytest.raises(podbay.Unreachable):
        podbay.Provider("raw", kubeconfig=str(file)).list()
    context = known["contexts"][0]["name"]
    assert podbay.Provider("raw", kubeconfig=str(file), context=context).list() is not None
