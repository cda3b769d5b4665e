"""A minimal Kubernetes client, to inspect what the programs created without using Podbay."""

from __future__ import annotations

import base64
import json
import os
import ssl
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml


class Api:
    """The cluster of a kubeconfig, by default of $KUBECONFIG, and a namespace, by default the kubeconfig's."""

    def __init__(self, kubeconfig: str | None = None, namespace: str | None = None) -> None:
        config = yaml.safe_load(Path(kubeconfig or os.environ["KUBECONFIG"]).read_text())
        [context] = [each["context"] for each in config["contexts"] if each["name"] == config["current-context"]]
        [cluster] = [each["cluster"] for each in config["clusters"] if each["name"] == context["cluster"]]
        [user] = [each["user"] for each in config["users"] if each["name"] == context["user"]]
        own = os.environ.get("PODBAY_RIG_NAMESPACE") or context.get("namespace", "default")
        self.namespace = namespace or own
        self._server = cluster["server"]
        self._headers = {"Content-Type": "application/json"}
        self._tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        else:
            with tempfile.TemporaryDirectory() as place:
                files = [Path(place) / name for name in ("certificate", "key")]
                for file, key in zip(files, ("client-certificate-data", "client-key-data"), strict=True):
                    file.write_bytes(base64.b64decode(user[key]))
                self._tls.load_cert_chain(*files)

    @classmethod
    def of_claims(cls) -> Api:
        """Returns the namespace of the account that claims sandboxes, as the tests' own account sees and changes it."""
        return cls(os.environ["HARNESS_KUBECONFIG"], cls(os.environ["CLAIMS_KUBECONFIG"]).namespace)

    def get(self, path: str) -> Any:
        """Returns the object at a path of the API."""
        request = urllib.request.Request(self._server + path, None, self._headers)
        with urllib.request.urlopen(request, timeout=30, context=self._tls) as answer:
            return json.load(answer)

    def delete(self, path: str) -> None:
        """Deletes the object at a path of the API, if it is still there."""
        request = urllib.request.Request(self._server + path, None, self._headers, method="DELETE")
        try:
            urllib.request.urlopen(request, timeout=30, context=self._tls).close()
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def patch(self, path: str, change: dict[str, Any]) -> None:
        """Merges a change into the object at a path of the API."""
        headers = self._headers | {"Content-Type": "application/merge-patch+json"}
        request = urllib.request.Request(self._server + path, json.dumps(change).encode(), headers, method="PATCH")
        urllib.request.urlopen(request, timeout=30, context=self._tls).close()

    def claims(self, selector: str) -> list[Any]:
        """Returns the SandboxClaims with labels."""
        query = f"labelSelector={urllib.parse.quote(selector)}"
        path = f"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{self.namespace}/sandboxclaims?{query}"
        return self.get(path)["items"]

    def sandbox_of_claim(self, claim: str) -> Any:
        """Returns the Sandbox of a SandboxClaim."""
        path = f"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{self.namespace}/sandboxclaims/{claim}"
        sandbox = self.get(path)["status"]["sandbox"]["name"]
        return self.get(f"/apis/agents.x-k8s.io/v1beta1/namespaces/{self.namespace}/sandboxes/{sandbox}")

    def delete_pod_of_claim(self, claim: str) -> None:
        """Deletes the pod of a SandboxClaim, and waits until it is gone. The controller then creates another."""
        sandbox = self.sandbox_of_claim(claim)["metadata"]
        name = sandbox.get("annotations", {}).get("agents.x-k8s.io/pod-name", sandbox["name"])
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        before = self.get(path)["metadata"]["uid"]
        self.delete(path)
        for _ in range(300):
            try:
                if self.get(path)["metadata"]["uid"] != before:
                    return
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return
                raise
            time.sleep(0.1)
        raise TimeoutError(f"the pod {name} is still there")
