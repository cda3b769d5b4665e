"""What the modules for agent-sandbox share: connection parameters, handles of its SDK, and names of claims."""

from __future__ import annotations

import re
from typing import Any

import podbay

__all__ = ["attachment", "claim_id", "connection", "sdk_settings"]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MODES = ("direct", "exec", "gateway", "in-cluster", "tunnel")
# By name, so that the SDK needn't be installed. Its tunnel isn't one of them: that is its default.
_ROUTER_CONFIGS = {
    "SandboxDirectConnectionConfig": "direct",
    "SandboxGatewayConnectionConfig": "gateway",
}
_ROUTER_NAMESPACE = "agent-sandbox-system"
_RUNTIME_PORT = 8888


def connection(
    connection_mode: str | None = None,
    *,
    gateway_name: str | None = None,
    gateway_namespace: str | None = None,
    api_url: str | None = None,
    router_namespace: str | None = None,
    server_port: int = _RUNTIME_PORT,
    connection_config: Any = None,
    private_key_file: str | None = None,
) -> dict[str, Any]:
    """Returns Podbay's settings for the connection that a program asks for.

    A router's URL wins over a Gateway, and `connection_mode` over both. The packages' default, a tunnel, can't be told
    from no choice at all, so there Podbay's own setting `cluster.connection` decides: pods/exec, or the pod's own
    address if there is a private key. Connections through the router need that key (docs/router.md).

    `server_port` is the stock runtime's port (`agent_sandbox.runtime_port`). Its default can't be told from no choice
    either.
    """

    def given(value: Any, field: str) -> Any:
        return value or getattr(connection_config, field, None)

    if connection_mode is not None and connection_mode not in _MODES:
        raise ValueError(f"Unknown connection_mode: {connection_mode!r}. Use one of {', '.join(_MODES)}.")
    url, gateway = given(api_url, "api_url"), given(gateway_name, "gateway_name")
    mode, asked = _asked(connection_mode, url, gateway, connection_config)
    found: dict[str, Any] = {"connection": mode}
    if mode == "direct":
        found |= {"router_url": url, **_direct(connection_config)}
    elif mode == "gateway":
        found |= {"gateway_name": gateway, "gateway_namespace": given(gateway_namespace, "gateway_namespace")}
    elif mode in (None, "tunnel"):
        namespace = given(router_namespace, "router_namespace")
        found["router_namespace"] = None if namespace == _ROUTER_NAMESPACE else namespace
    if server_port == _RUNTIME_PORT:
        server_port = getattr(connection_config, "server_port", _RUNTIME_PORT)
    if server_port != _RUNTIME_PORT:
        found["runtime_port"] = server_port
    if mode not in (None, "exec"):
        _require_key(asked, private_key_file)
    # A port of 0 is passed on: Podbay's error says what is wrong with it.
    return {name: value for name, value in found.items() if value or name == "runtime_port"}


def _asked(mode: str | None, url: str | None, gateway: str | None, config: Any) -> tuple[str | None, str]:
    """Returns the connection that was asked for, if any was, and the parameter that did."""
    if mode == "direct" and not url:
        raise ValueError("api_url is required when connection_mode='direct'")
    if mode == "gateway" and not gateway:
        raise ValueError("gateway_name is required when connection_mode='gateway'")
    if mode is not None:
        return mode, f"connection_mode={mode!r}"
    name = type(config).__name__
    if name in _ROUTER_CONFIGS:
        return _ROUTER_CONFIGS[name], name
    if url:
        return "direct", f"api_url={url!r}"
    if gateway:
        return "gateway", f"gateway_name={gateway!r}"
    return None, ""


def _direct(config: Any) -> dict[str, Any]:
    """Returns what the SDK's configuration says about a router behind a proxy that checks who is there."""
    cert, key = getattr(config, "client_cert", None) or (None, None)
    return {
        "router_headers": dict(getattr(config, "extra_headers", None) or {}),
        "router_ca_file": getattr(config, "ca_cert", None),
        "router_client_cert_file": cert,
        "router_client_key_file": key,
    }


def _require_key(asked: str, private_key_file: str | None) -> None:
    """Says what to do if there is no key, before anything is created in the cluster."""
    configured = {key: value for key, _, value in podbay.effective_settings("agent-sandbox")}
    if not private_key_file and not configured.get("cluster.private_key_file"):
        raise podbay.ConfigError(
            f"{asked} asks for a connection that podbayd accepts only with a signed token: make a key with 'podbay "
            "keys', and set PODBAY_CLUSTER_PRIVATE_KEY_FILE to its path (docs/router.md says what else to do); or pass "
            "connection_mode='exec' to connect through the Kubernetes API, which needs neither router nor key but the "
            "right to pods/exec"
        )


def attachment(handle: Any, connection_mode: str | None = None) -> dict[str, Any]:
    """Returns the arguments of a `podbay.Sandbox` that attaches to the claim of an SDK's handle.

    The handle can be a `k8s_agent_sandbox.Sandbox`, or any object with its `claim_name` and `namespace`. One with a
    `SandboxDirectConnectionConfig` needs no rights on the cluster: its `sandbox_id` is what the router knows.
    """
    claim = getattr(handle, "claim_name", None)
    if claim is None:
        if hasattr(handle, "claim_name"):
            raise podbay.ConfigError("the sandbox has no claim: it was terminated, or not started yet")
        raise TypeError(
            f"sandbox has to be a handle such as k8s_agent_sandbox.Sandbox, with a claim_name and a namespace, not "
            f"{type(handle).__name__}"
        )
    config = getattr(handle, "connection_config", None)
    by_url = (connection_mode or _ROUTER_CONFIGS.get(type(config).__name__)) == "direct"
    cluster = sdk_settings(handle, required=not by_url)
    reached = connection(connection_mode, connection_config=config, private_key_file=cluster.get("private_key_file"))
    name = getattr(handle, "sandbox_id", None)
    if by_url and isinstance(name, str) and name != claim and _LABEL.fullmatch(name):
        # The router knows the Sandbox, which isn't named like a claim on a warm pool.
        reached["sandbox_names"] = {claim_id(claim): name}
    return {
        "mode": "agent-sandbox",
        "id": claim_id(claim),
        "attach": True,
        # The SDK's own claims aren't Podbay's.
        "foreign_claims": True,
        "namespace": str(getattr(handle, "namespace", None) or "default"),
        **cluster,
        **reached,
    }


def sdk_settings(handle: Any, *, required: bool = True) -> dict[str, Any]:
    """Returns the cluster of an SDK's client or handle: none if it uses the same kubeconfig as Podbay.

    Where the cluster isn't `required`, because a router's URL is known, one that Podbay can't use is left alone.
    """
    client = getattr(getattr(handle, "k8s_helper", None), "injected_api_client", None)
    if client is None:
        return dict(getattr(handle, "podbay_settings", None) or {})
    configuration = client.configuration
    keys = getattr(configuration, "api_key", None) or {}
    # The package kubernetes renamed the key.
    token = keys.get("authorization") or keys.get("BearerToken")
    if not token and not required:
        return {"router_only": True}
    if not token:
        raise podbay.ConfigError(
            "the client's api_client has no bearer token, so Podbay can't use its cluster: leave out api_client and "
            "set KUBECONFIG instead"
        )
    found = {"api_url": configuration.host, "token": str(token).removeprefix("Bearer ")}
    if configuration.ssl_ca_cert:
        found["ca_file"] = str(configuration.ssl_ca_cert)
    return found


def claim_id(name: str | bytes) -> str:
    """Returns the id of the sandbox with a claim's name. One that no claim can have, such as "my thread", is hashed.

    Bytes are accepted because Redis returns them.
    """
    text = name.decode() if isinstance(name, bytes) else str(name)
    if _LABEL.fullmatch(text):
        return text
    if not text:
        raise ValueError("the claim's name is empty")
    return podbay.sandbox_id("", text)
