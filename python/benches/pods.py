"""The backends to compare, each in its own pod."""

from __future__ import annotations

import shlex
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1 << 20
LIMITS = {"cpu_request": "100m", "cpu_limit": "1000m", "memory_request": "64Mi", "memory_limit": "512Mi"}


@contextmanager
def podbay_sandbox(image: str, namespace: str) -> Iterator[BaseSandbox]:
    """Podbay's backend."""
    from podbay.deepagents import PodbaySandbox

    with PodbaySandbox(mode="raw", image=image, namespace=namespace, ttl="1h", **LIMITS) as sandbox:
        yield sandbox


@contextmanager
def langchain_kubernetes(image: str, namespace: str, patience: int) -> Iterator[BaseSandbox]:
    """The real langchain-kubernetes. Its pods' working directory belongs to root, so a volume is mounted there."""
    from langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

    provider = KubernetesProvider(
        KubernetesProviderConfig(
            mode="raw",
            image=image,
            namespace=namespace,
            block_network=False,
            default_exec_timeout=patience,
            volumes=[{"name": "work", "emptyDir": {}}],
            volume_mounts=[{"name": "work", "mountPath": "/workspace"}],
            pod_template_overrides={"terminationGracePeriodSeconds": 0, "securityContext": {"fsGroup": 1000}},
            **LIMITS,
        )
    )
    sandbox = provider.get_or_create()
    try:
        yield sandbox
    finally:
        provider.delete(sandbox_id=sandbox.id)


@contextmanager
def scripts(image: str, namespace: str) -> Iterator[BaseSandbox]:
    """Deep Agents' scripts over the official Kubernetes client."""
    from kubernetes import client, config

    config.load_config()
    core = client.CoreV1Api()
    name = f"bench-scripts-{uuid.uuid4().hex[:8]}"
    limits = {"cpu": LIMITS["cpu_limit"], "memory": LIMITS["memory_limit"]}
    requests = {"cpu": LIMITS["cpu_request"], "memory": LIMITS["memory_request"]}
    pod = {
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000},
            "volumes": [{"name": "work", "emptyDir": {}}],
            "containers": [
                {
                    "name": "sandbox",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "infinity"],
                    "workingDir": "/workspace",
                    "volumeMounts": [{"name": "work", "mountPath": "/workspace"}],
                    "resources": {"limits": limits, "requests": requests},
                }
            ],
        },
    }
    core.create_namespaced_pod(namespace, pod)
    try:
        for _ in range(600):
            if core.read_namespaced_pod(name, namespace).status.phase == "Running":
                break
            time.sleep(0.1)
        yield ExecSandbox(core, namespace, name)
    finally:
        core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)


class ExecSandbox(BaseSandbox):
    """The minimum that BaseSandbox needs: one pod exec per command and per transferred file."""

    def __init__(self, core: Any, namespace: str, pod: str) -> None:
        self._core = core
        self._namespace = namespace
        self._pod = pod

    @property
    def id(self) -> str:
        """The pod's name."""
        return self._pod

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command by one exec."""
        output, code = self._exec(command, timeout=timeout)
        return ExecuteResponse(output=output.decode("utf-8", "replace"), exit_code=code)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Uploads by one exec per file. `head` gets the size, because the client can't close standard input."""
        responses = []
        for path, content in files:
            quoted = shlex.quote(path)
            output, code = self._exec(
                f"mkdir -p $(dirname {quoted}) && head -c {len(content)} > {quoted}", stdin=content
            )
            responses.append(
                FileUploadResponse(path=path, error=None if code == 0 else output.decode("utf-8", "replace"))
            )
        return responses

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Downloads by one exec per file."""
        responses = []
        for path in paths:
            output, code = self._exec(f"cat {shlex.quote(path)}")
            responses.append(FileDownloadResponse(path=path, content=output if code == 0 else None))
        return responses

    def _exec(self, command: str, *, stdin: bytes | None = None, timeout: int | None = None) -> tuple[bytes, int]:
        from kubernetes.stream import stream

        session = stream(
            self._core.connect_get_namespaced_pod_exec,
            self._pod,
            self._namespace,
            command=["/bin/sh", "-c", command],
            stdin=stdin is not None,
            stdout=True,
            stderr=True,
            _preload_content=False,
            binary=True,
        )
        try:
            # In messages of a size that the API server accepts.
            for start in range(0, len(stdin or b""), CHUNK):
                session.write_stdin((stdin or b"")[start : start + CHUNK])
            session.run_forever(timeout=timeout or 60)
            if session.is_open():
                raise TimeoutError(f"the exec didn't end in {timeout or 60} s")
            # Read the code first: reading the output empties the channel that has the code.
            code = int(session.returncode or 0)
            return session.read_all(), code
        finally:
            session.close()
