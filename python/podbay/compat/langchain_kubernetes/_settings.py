"""A config of langchain-kubernetes as Podbay's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import podbay

if TYPE_CHECKING:
    from podbay.compat.langchain_kubernetes.config import KubernetesProviderConfig

LABEL_PREFIX = "langchain-kubernetes.bitkaio.com/"
"""What comes before every label."""

MANAGED_BY = {"managed-by": "langchain-kubernetes"}
"""The label of every sandbox of this package, by which they are listed."""

THREAD_ID = "thread-id"
"""The label with the thread that a sandbox belongs to, when the caller gives it one."""

THREAD_SCOPED = {"scope": "thread"}
"""The label of sandboxes whose id follows from a thread: each is a thread of its own."""

# Fields that Podbay has under the same name, with the same meaning.
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

# What a field has that nobody set. An empty text isn't among them: Podbay says what is wrong with it.
_UNSET: tuple[object, ...] = (None, False, [], {})
_WAITS = ["sleep", "infinity"]


def settings(config: KubernetesProviderConfig) -> dict[str, Any]:
    """What `podbay.Provider` shall be given."""
    _refuse_what_there_is_not(config)
    found: dict[str, Any] = {"mode": config.mode}
    if config.env:
        found["env"] = config.env
    if config.mode == "local":
        if config.setup_script:
            raise ValueError("setup_script needs mode='raw': run it yourself in a sandbox of this machine")
        if not config.block_network:
            found["network"] = "host"
        return found
    found |= {name: value for name in _SAME if (value := getattr(config, name)) not in _UNSET}
    found |= {
        "block_network": config.block_network,
        "label_prefix": LABEL_PREFIX,
        "startup_timeout": config.startup_timeout_seconds,
        "run_as_user": _id(config.run_as_user),
        "run_as_group": _id(config.run_as_group),
        # The group that may write to the working directory: it was nobody's but root's.
        "fs_group": _id(config.run_as_group),
        "seccomp_profile": config.seccomp_profile,
    }
    if list(config.command) != _WAITS:
        found["command"] = list(config.command)
    if config.pod_template_overrides:
        found["pod_template_overrides"] = {"spec": config.pod_template_overrides}
    return found


def labels(config: KubernetesProviderConfig, *more: dict[str, str] | None) -> dict[str, str]:
    """The labels of a new sandbox: the later beats the earlier, and managed-by is always ours."""
    found = dict(config.default_labels or {})
    for some in more:
        found |= some or {}
    return {without_prefix(key): value for key, value in found.items()} | MANAGED_BY


def without_prefix(key: str) -> str:
    """A label's key as Podbay wants it: the prefix is a setting."""
    return key.removeprefix(LABEL_PREFIX)


def _id(number: int | None) -> int | str:
    """A user's number; None lets the cluster choose it, as on OpenShift."""
    return "none" if number is None else number


def _refuse_what_there_is_not(config: KubernetesProviderConfig) -> None:
    modes = next(setting.choices for setting in podbay.SETTINGS if setting.key == "mode")
    if config.mode not in modes:
        raise podbay.ConfigError(
            f"mode={config.mode!r} isn't in this build of Podbay, which has {' and '.join(modes)}: "
            "use mode='raw', which needs no controller on the cluster, or a newer Podbay"
        )
    if config.mode == "raw" and config.seccomp_profile == "Localhost":
        raise ValueError(
            "seccomp_profile='Localhost' doesn't say which profile: give the profile's path on the node, such as "
            "'profiles/sandbox.json'"
        )
