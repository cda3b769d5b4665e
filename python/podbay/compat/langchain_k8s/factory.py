"""Sandboxes by the name of their claim."""

from __future__ import annotations

from typing import Any

from podbay.compat._claims import connection, sdk_settings
from podbay.compat.langchain_k8s.sandbox import KubernetesSandbox, Wanted, creation


def create_kubernetes_sandbox(
    *,
    client: Any,
    claim_name: str,
    template_name: str | None = None,
    warmpool_name: str | None = None,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    pod_labels: dict[str, str] | None = None,
    pod_annotations: dict[str, str] | None = None,
    volume_claim_templates: list[dict[str, Any]] | None = None,
    shutdown_after_seconds: int | None = None,
    env: dict[str, str] | None = None,
    sandbox_ready_timeout: int = 180,
    **kwargs: Any,
) -> KubernetesSandbox:
    """Returns the sandbox of a claim, and creates it if it doesn't exist.

    Any number of processes can ask for the same claim at once; they get the same sandbox. Deleting it is up to you:
    `client.delete_sandbox(claim_name, namespace)`. A `claim_name` that isn't a DNS label is replaced by its hash. Other
    arguments are passed to `KubernetesSandbox`.
    """
    if not template_name and not warmpool_name:
        raise ValueError("Either 'template_name' or 'warmpool_name' must be provided")
    mode = kwargs.get("connection_mode")
    settings = creation(
        namespace=namespace,
        template_name=template_name,
        pool=warmpool_name,
        labels=labels,
        shutdown_after_seconds=shutdown_after_seconds,
        pod_labels=pod_labels,
        pod_annotations=pod_annotations,
        volume_claim_templates=volume_claim_templates,
        env=env,
    )
    settings |= {
        "startup_timeout": sandbox_ready_timeout,
        # The claim may have been created with the SDK.
        "foreign_claims": True,
        **connection(mode, connection_config=getattr(client, "connection_config", None)),
        **sdk_settings(client),
    }
    name = claim_name.decode() if isinstance(claim_name, bytes) else claim_name
    backend = KubernetesSandbox(sandbox=Wanted(name, namespace, settings), **kwargs)
    backend.start()
    return backend
