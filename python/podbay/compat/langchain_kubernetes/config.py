"""The provider's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_MODES = ("agent-sandbox", "raw", "local")


@dataclass
class KubernetesProviderConfig:
    """The configuration of sandboxes, with the names and defaults of langchain-kubernetes.

    `mode` is `raw` (pods in any cluster), `agent-sandbox` (which needs a `template_name`) or `local` (this machine),
    which langchain-kubernetes doesn't have. `local` ignores the fields that describe the pod.

    In mode `agent-sandbox`, the `connection_mode`s `gateway` and `direct` go through agent-sandbox's router, which
    needs a private key (docs/router.md). `tunnel`, the default, is what Podbay's setting `cluster.connection` says: the
    Kubernetes API unless that is set. `exec` is always that. `server_port` is the port of the stock runtime
    (docs/runtime.md).

    `command` is what the container runs. `["sleep", "infinity"]` is replaced by a waiting shell, because `sleep` as the
    first process of a pod ignores SIGTERM. `pod_template_overrides` are merged into the pod's spec and must not weaken
    its security. `seccomp_profile` is `RuntimeDefault` or the path of a profile on the node. `pod_ttl_seconds` has no
    effect, as in langchain-kubernetes: use `ttl_seconds`. `kube_api_url` and `kube_token` replace the kubeconfig and
    its credentials.
    """

    mode: str = "agent-sandbox"

    namespace: str = "default"
    startup_timeout_seconds: int = 120
    default_exec_timeout: int = 60 * 30

    default_labels: dict[str, str] | None = None
    ttl_seconds: int | None = None
    ttl_idle_seconds: int | None = None

    template_name: str | None = None
    connection_mode: str = "tunnel"
    gateway_name: str | None = None
    gateway_namespace: str = "default"
    api_url: str | None = None
    server_port: int = 8888
    warm_pool_name: str | None = None
    kube_api_url: str | None = None
    kube_token: str | None = field(default=None, repr=False)

    image: str = "python:3.12-slim"
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: list[str] = field(default_factory=list)
    workdir: str = "/workspace"
    command: list[str] = field(default_factory=lambda: ["sleep", "infinity"])
    env: dict[str, str] = field(default_factory=dict)
    cpu_request: str = "100m"
    cpu_limit: str = "1000m"
    memory_request: str = "256Mi"
    memory_limit: str = "1Gi"
    ephemeral_storage_limit: str = "5Gi"
    block_network: bool = True
    run_as_user: int = 1000
    run_as_group: int = 1000
    seccomp_profile: str = "RuntimeDefault"
    namespace_per_sandbox: bool = False
    pod_ttl_seconds: int | None = 3600
    warm_pool_size: int = 0
    service_account: str | None = None
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    volume_mounts: list[dict[str, Any]] = field(default_factory=list)
    init_containers: list[dict[str, Any]] = field(default_factory=list)
    pod_template_overrides: dict[str, Any] | None = None
    extra_annotations: dict[str, str] = field(default_factory=dict)
    setup_script: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ValueError(f"Unknown mode: {self.mode!r}. Must be 'agent-sandbox', 'raw' or 'local'.")
        if self.mode == "agent-sandbox" and self.template_name is None:
            raise ValueError(
                "template_name is required when mode='agent-sandbox'. Set "
                "KubernetesProviderConfig(template_name='my-template'), or use mode='raw' for plain pods."
            )
