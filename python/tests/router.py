"""agent-sandbox's router as programs outside of the cluster reach it: at a forwarded port, and behind a Gateway.

Nothing implements the Gateway API on the rig, so the Gateway's status is written by hand: it names the forwarded port.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CHANNELS = ["exec", "tunnel", "direct", "gateway"]
"""The values of `cluster.connection` that work from outside of the cluster."""

_GATEWAY = "sandbox-gateway"


class Router:
    """The router, a Gateway in front of it in the sandboxes' namespace, and a private key for podbayd.

    The kubeconfig is that of the tests' own account: Podbay's may neither make Gateways nor do all that kubectl does.
    """

    def __init__(self, kubeconfig: str, namespace: str, directory: Path) -> None:
        self.key_file = directory / "key"
        self.key_file.write_text("podbay-private-v1." + base64.urlsafe_b64encode(bytes([1] * 32)).decode().rstrip("="))
        self.gateway, self.namespace = _GATEWAY, namespace
        self._kubectl = [os.environ["RIG_KUBECTL"], "--kubeconfig", kubeconfig]
        # A file, because kubectl writes a line for each connection and nobody would read them from a pipe.
        self._log = directory / "port-forward"
        forward = [
            *self._kubectl,
            "port-forward",
            "--namespace=agent-sandbox-system",
            "svc/sandbox-router-svc",
            ":8080",
        ]
        with self._log.open("w") as log:
            self._forward = subprocess.Popen(forward, stdout=log, stderr=subprocess.STDOUT)
        port = self._port()
        self.url = f"http://127.0.0.1:{port}"
        self._add_gateway(port)

    def close(self) -> None:
        """Ends the port-forward."""
        self._forward.terminate()
        self._forward.wait()

    def environment(self, channel: str) -> dict[str, str]:
        """Returns the variables that make Podbay use a channel where a program doesn't ask for one."""
        return {
            "PODBAY_CLUSTER_PRIVATE_KEY_FILE": str(self.key_file),
            "PODBAY_CLUSTER_CONNECTION": channel,
            "PODBAY_AGENT_SANDBOX_ROUTER_URL": self.url,
            "PODBAY_AGENT_SANDBOX_GATEWAY_NAME": self.gateway,
            "PODBAY_AGENT_SANDBOX_GATEWAY_NAMESPACE": self.namespace,
        }

    def _port(self) -> int:
        for _ in range(300):
            found = re.search(r"127\.0\.0\.1:(\d+)", self._log.read_text())
            if found:
                return int(found[1])
            if self._forward.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"the port can't be forwarded: {self._log.read_text()}")

    def _add_gateway(self, port: int) -> None:
        gateway = {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"name": self.gateway, "namespace": self.namespace},
            "spec": {"gatewayClassName": "none", "listeners": [{"name": "web", "protocol": "HTTP", "port": port}]},
        }
        apply = [*self._kubectl, "apply", "-f", "-"]
        subprocess.run(apply, input=json.dumps(gateway), text=True, check=True, stdout=subprocess.DEVNULL)
        status = {"status": {"addresses": [{"type": "IPAddress", "value": "127.0.0.1"}]}}
        patch = ["patch", "gateway", self.gateway, f"--namespace={self.namespace}", "--subresource=status"]
        patch += ["--type=merge", f"--patch={json.dumps(status)}"]
        subprocess.run([*self._kubectl, *patch], check=True, stdout=subprocess.DEVNULL)
