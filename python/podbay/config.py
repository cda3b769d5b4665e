"""Settings as dataclasses, under the names that they have in `podbay.toml`.

What is None isn't set: the environment (`PODBAY_…`), settings files and the defaults have their say, in that order. A
limit is lifted by "none".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

__all__ = ["LocalConfig", "RawConfig"]


@dataclass(frozen=True, kw_only=True)
class LocalConfig:
    """How sandboxes on this machine shall be. Sizes are bytes or texts such as "512MiB", times seconds or "2h"."""

    home: str | None = None
    env: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    ttl: float | str | timedelta | None = None
    idle_ttl: float | str | timedelta | None = None
    workspace: str | None = None
    mounts: Sequence[str] | None = None
    network: Literal["none", "host", "host-unfenced"] | None = None
    isolation: Literal["namespaces", "landlock"] | None = None
    memory: int | str | None = None
    cpu: float | Literal["none"] | None = None
    processes: int | Literal["none"] | None = None
    disk: int | str | None = None
    descriptors: int | Literal["none"] | None = None


@dataclass(frozen=True, kw_only=True)
class RawConfig:
    """How sandboxes on a cluster shall be: plain pods, nothing to install."""

    env: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    ttl: float | str | timedelta | None = None
    idle_ttl: float | str | timedelta | None = None
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    image: str | None = None
    image_arch: Literal["amd64", "arm64"] | None = None
    setup_script: str | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: Sequence[str] | None = None
    workdir: str | None = None
    command: Sequence[str] | None = None
    env_from: Mapping[str, Mapping[str, Any]] | None = None
    cpu_request: str | None = None
    cpu_limit: str | None = None
    memory_request: str | None = None
    memory_limit: str | None = None
    ephemeral_storage_request: str | None = None
    ephemeral_storage_limit: str | None = None
    service_account: str | None = None
    node_selector: Mapping[str, str] | None = None
    tolerations: Sequence[Mapping[str, Any]] | None = None
    node_loss_tolerance: float | str | timedelta | None = None
    affinity: Mapping[str, Any] | None = None
    runtime_class: str | None = None
    user_namespace: bool | None = None
    volumes: Sequence[Mapping[str, Any]] | None = None
    volume_mounts: Sequence[Mapping[str, Any]] | None = None
    init_containers: Sequence[Mapping[str, Any]] | None = None
    pod_template_overrides: Mapping[str, Any] | None = None
    allow_weaker_security: bool | None = None
    extra_annotations: Mapping[str, str] | None = None
    label_prefix: str | None = None
    run_as_user: int | Literal["none"] | None = None
    run_as_group: int | Literal["none"] | None = None
    fs_group: int | Literal["none"] | None = None
    run_as_non_root: bool | None = None
    read_only_root: bool | None = None
    seccomp_profile: str | None = None
    command_filter: bool | None = None
    block_network: bool | None = None
    egress: Sequence[Mapping[str, Any]] | None = None
    cluster_ranges: Sequence[str] | None = None
    ingress: Sequence[Mapping[str, Any]] | None = None
    startup_timeout: float | str | timedelta | None = None
    wait_for_node: bool | None = None
    namespace_per_sandbox: bool | None = None
    namespace_labels: Mapping[str, str] | None = None
    namespace_quota: Mapping[str, str] | None = None
    warm_pool_size: int | None = None
    warm_pool_name: str | None = None
