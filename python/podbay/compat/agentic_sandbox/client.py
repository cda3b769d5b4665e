"""A sandbox for the duration of a `with` block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from podbay.compat._claims import connection
from podbay.compat.k8s_agent_sandbox.client import SandboxClient as Client
from podbay.compat.k8s_agent_sandbox.sandbox import CommandExecutor, Filesystem

if TYPE_CHECKING:
    from types import TracebackType

    import podbay
    from podbay.compat.k8s_agent_sandbox.models import ExecutionResult
    from podbay.compat.k8s_agent_sandbox.sandbox import Sandbox


class SandboxClient:
    """Creates a sandbox at the beginning of a `with` block and deletes it at the end.

    `gateway_name` and `api_url` go through agent-sandbox's router, which needs a private key (docs/router.md);
    without them, the connection goes through the Kubernetes API. `server_port` is the port of the stock runtime
    (docs/runtime.md). `settings` are Podbay's, and `connection_mode`.
    """

    def __init__(
        self,
        template_name: str,
        namespace: str = "default",
        gateway_name: str | None = None,
        gateway_namespace: str = "default",
        api_url: str | None = None,
        server_port: int = 8888,
        **settings: Any,
    ) -> None:
        self.template_name = template_name
        self.namespace = namespace
        mode = settings.pop("connection_mode", None)
        reached = connection(
            mode,
            gateway_name=gateway_name,
            gateway_namespace=gateway_namespace if gateway_name else None,
            api_url=api_url,
            server_port=server_port,
            private_key_file=settings.get("private_key_file"),
        )
        self.podbay_settings = {**reached, **settings}
        """The settings with which Podbay reaches its cluster."""
        self._sandbox: Sandbox | None = None

    @property
    def claim_name(self) -> str | None:
        """The name of the SandboxClaim; None outside of the `with` block."""
        return None if self._sandbox is None else self._sandbox.claim_name

    @property
    def sandbox_name(self) -> str | None:
        """The same."""
        return self.claim_name

    def is_ready(self) -> bool:
        """Whether the sandbox can be used."""
        return self._sandbox is not None

    def __enter__(self) -> Self:
        client = Client(**self.podbay_settings)
        self._sandbox = client.create_sandbox(namespace=self.namespace, template=self.template_name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.terminate()

    def run(self, command: str, timeout: int = 60) -> ExecutionResult:
        """Runs a shell command."""
        return CommandExecutor(self._native()).run(command, timeout)

    def write(self, path: str, content: bytes | str) -> None:
        """Creates or replaces a file."""
        Filesystem(self._native()).write(path, content)

    def read(self, path: str) -> bytes:
        """Returns a file's content."""
        return Filesystem(self._native()).read(path)

    def _native(self) -> podbay.Sandbox:
        if self._sandbox is None:
            raise RuntimeError("Sandbox is not ready: use the client in a `with` block")
        return self._sandbox.native
