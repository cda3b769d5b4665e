"""Converts a config of langchain-kubernetes to Podbay's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podbay.compat._claims import connection

if TYPE_CHECKING:
    from podbay.compat.langchain_kubernetes.config import KubernetesProviderConfig

LABEL_PREFIX = "langchain-kubernetes.bitkaio.com/"
"""The prefix of every label."""

MANAGED_BY = {"managed-by": "langchain-kubernetes"}
"""The label of every sandbox of this package, used to list them."""

THREAD_ID = "thread-id"
"""The label that has the thread of a sandbox: set by the manager, or by the caller."""

THREAD_SCOPED = {"scope": "thread"}
"""The label of sandboxes whose id is derived from a thread."""

# Fields that have the same name and meaning in Podbay.
_SAME = (
    "namespace",
    "image",
    "image_pull_policy",
    "image_pull_secrets",
    "workdir",
    "cpu_request",
    "cpu_limit",
    "memory_request",
    "memory_limit",
    "ephemeral_storage_limit",
    "block_network",
    "namespace_per_sandbox",
    "warm_pool_size",
    "service_account",
    "node_selector",
    "tolerations",
    "volumes",
    "volume_mounts",
    "init_containers",
    "extra_annotations",
    "setup_script",
)

# Values of fields that aren't set. An empty text isn't one of them: Podbay's error says what is wrong with it.
_UNSET: tuple[object, ...] = (None, False, [], {})
_DEFAULT_COMMAND = ["sleep", "infinity"]


def settings(config: KubernetesProviderConfig) -> dict[str, Any]:
    """Returns the arguments for `podbay.Provider`."""
    _reject_unsupported(config)
    found: dict[str, Any] = {"mode": config.mode}
    if config.env:
        found["env"] = config.env
    if config.mode == "local":
        if config.setup_script:
            raise ValueError("setup_script needs mode='raw'; with mode='local', run the script in the sandbox yourself")
        if not config.block_network:
            found["network"] = "host"
        return found
    if config.mode == "agent-sandbox":
        return found | _claims(config)
    found |= {name: value for name in _SAME if (value := getattr(config, name)) not in _UNSET}
    found |= {
        "block_network": config.block_network,
        "label_prefix": LABEL_PREFIX,
        "startup_timeout": config.startup_timeout_seconds,
        "run_as_user": _id(config.run_as_user),
        "run_as_group": _id(config.run_as_group),
        # The group that can write to the working directory, which used to belong to root.
        "fs_group": _id(config.run_as_group),
        "seccomp_profile": config.seccomp_profile,
    }
    found |= _cluster(config)
    if list(config.command) != _DEFAULT_COMMAND:
        found["command"] = list(config.command)
    if config.pod_template_overrides:
        found["pod_template_overrides"] = {"spec": config.pod_template_overrides}
    return found


def labels(config: KubernetesProviderConfig, *more: dict[str, str] | None) -> dict[str, str]:
    """Returns the labels of a new sandbox. Later ones override earlier ones, except for managed-by."""
    found = dict(config.default_labels or {})
    for some in more:
        found |= some or {}
    return {without_prefix(key): value for key, value in found.items()} | MANAGED_BY


def without_prefix(key: str) -> str:
    """Returns a label's key without the prefix, which is a setting in Podbay."""
    return key.removeprefix(LABEL_PREFIX)


def _id(number: int | None) -> int | str:
    """Converts a user or group id; None lets the cluster choose one, as OpenShift does."""
    return "none" if number is None else number


def _claims(config: KubernetesProviderConfig) -> dict[str, Any]:
    """Returns the settings of mode agent-sandbox. What a pod looks like is the template's business."""
    named = {"template_name": config.template_name, "warm_pool_name": config.warm_pool_name}
    # The field decides, whatever else is set; a tunnel is its default.
    router: dict[str, Any] = {
        "connection_mode": config.connection_mode,
        "gateway_name": config.gateway_name,
        "gateway_namespace": config.gateway_namespace,
        "api_url": config.api_url,
    }
    return {
        "namespace": config.namespace,
        "label_prefix": LABEL_PREFIX,
        "startup_timeout": config.startup_timeout_seconds,
        **{name: value for name, value in named.items() if value},
        **_cluster(config),
        **connection(server_port=config.server_port, **({} if config.connection_mode == "tunnel" else router)),
    }


def _cluster(config: KubernetesProviderConfig) -> dict[str, Any]:
    given = {"api_url": config.kube_api_url, "token": config.kube_token}
    return {name: value for name, value in given.items() if value}


def _reject_unsupported(config: KubernetesProviderConfig) -> None:
    if config.mode == "raw" and config.seccomp_profile == "Localhost":
        raise ValueError(
            "seccomp_profile='Localhost' doesn't name a profile: pass the profile's path on the node, such as "
            "'profiles/sandbox.json'"
        )
