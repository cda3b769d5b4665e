"""The sandbox as a Deep Agents backend."""

from __future__ import annotations

from typing import Any

import podbay
from podbay.compat._claims import attachment
from podbay.deepagents import PodbaySandbox
from podbay.deepagents.conversations import SingleSandbox

COMMAND_TIMEOUT_EXIT_CODE = 124
"""The exit code of a command that took too long."""


class KubernetesAgentSandbox(PodbaySandbox):
    """A sandbox that was created with k8s-agent-sandbox.

    `sandbox` is its handle, and stays yours: `backend.sandbox.terminate()` deletes the sandbox. Podbay connects to the
    handle's claim by itself, through the same router if the handle's own connection is a gateway or a router's URL,
    which needs a private key (docs/router.md). `connection_mode="exec"` makes it use the Kubernetes API for those too.
    """

    def __init__(self, *, sandbox: Any, timeout: int = 300, connection_mode: str | None = None) -> None:
        native = podbay.Sandbox(**attachment(sandbox, connection_mode))
        # Attaching again finds the pod that the controller put in the place of one that is gone.
        self._use(SingleSandbox(native, replaces=True), timeout=timeout)
        self.sandbox = sandbox
        """The handle."""
        self.default_timeout = timeout
        """How many seconds a command may take unless the call says."""

    def __repr__(self) -> str:
        return f"KubernetesAgentSandbox({self.id!r})"

    @property
    def id(self) -> str:
        """The id of the handle's sandbox."""
        return str(self.sandbox.sandbox_id)

    def _seconds(self, timeout: float | None) -> float:
        return self.default_timeout if timeout is None else timeout
