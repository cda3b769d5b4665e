"""The backend of mode agent-sandbox, for programs that import it."""

from __future__ import annotations

from typing import Any

import podbay


class AgentSandboxBackend:
    """A sandbox of the kubernetes-sigs/agent-sandbox controller, which this version of Podbay doesn't support."""

    def __init__(self, *, client: Any, sandbox_name: str, activity_callback: Any = None) -> None:  # noqa: ARG002
        raise podbay.ConfigError(
            f"the sandbox {sandbox_name!r} needs mode='agent-sandbox', but this version of Podbay supports only "
            "local and raw: use KubernetesProviderConfig(mode='raw')"
        )
