"""The mode agent-sandbox: its names, for programs that import them."""

from __future__ import annotations

from typing import Any

import podbay


class AgentSandboxBackend:
    """A sandbox of the kubernetes-sigs/agent-sandbox controller, which this build of Podbay hasn't got."""

    def __init__(self, *, client: Any, sandbox_name: str, activity_callback: Any = None) -> None:  # noqa: ARG002
        raise podbay.ConfigError(
            f"The sandbox {sandbox_name!r} is one of mode='agent-sandbox', and this build of Podbay has the modes "
            "local and raw: use KubernetesProviderConfig(mode='raw')"
        )
