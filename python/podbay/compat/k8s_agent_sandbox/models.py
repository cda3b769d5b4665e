"""The models of k8s-agent-sandbox that programs pass or get."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "ExecutionResult",
    "FileEntry",
    "SandboxDirectConnectionConfig",
    "SandboxGatewayConnectionConfig",
    "SandboxInClusterConnectionConfig",
    "SandboxLocalTunnelConnectionConfig",
    "SandboxTracerConfig",
    "SandboxdInClusterConnectionConfig",
    "SandboxdPodTunnelConnectionConfig",
]


@dataclass
class ExecutionResult:
    """The result of a command."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = -1
    timed_out: bool = False


@dataclass
class FileEntry:
    """A file or directory."""

    name: str
    size: int
    type: Literal["file", "directory"]
    modified: datetime
    mode: str | None = None


@dataclass
class SandboxDirectConnectionConfig:
    """A router's URL. It needs a private key (docs/router.md)."""

    api_url: str
    server_port: int = 8888
    extra_headers: dict[str, str] = field(default_factory=dict, repr=False)
    client_cert: tuple[str, str] | None = None
    ca_cert: str | None = None


@dataclass
class SandboxGatewayConnectionConfig:
    """A Gateway in front of the router. It needs a private key (docs/router.md)."""

    gateway_name: str
    gateway_namespace: str = "default"
    gateway_ready_timeout: int = 180
    server_port: int = 8888


@dataclass
class SandboxLocalTunnelConnectionConfig:
    """Through the Kubernetes API (pods/exec), unless Podbay's setting `cluster.connection` is `tunnel`."""

    port_forward_ready_timeout: int = 30
    server_port: int = 8888
    router_namespace: str = "agent-sandbox-system"


@dataclass
class SandboxInClusterConnectionConfig:
    """At the pod's address, if a private key is configured (docs/in-cluster.md), else through the Kubernetes API."""

    server_port: int = 8888


@dataclass
class SandboxdPodTunnelConnectionConfig:
    """A pod with sandboxd. Podbay uses pods/exec for this, and not sandboxd."""

    rest_port: int = 8080
    grpc_port: int = 9090
    port_forward_ready_timeout: int = 30


@dataclass
class SandboxdInClusterConnectionConfig:
    """The same at the pod's address."""

    mode: str
    rest_port: int = 8080
    grpc_port: int = 9090


@dataclass
class SandboxTracerConfig:
    """Whether operations are spans, and what their names begin with."""

    enable_tracing: bool = False
    trace_service_name: str = "sandbox-client"
