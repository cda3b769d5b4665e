"""A minimal Kubernetes client, to inspect what the programs created without using Podbay."""

from __future__ import annotations

import base64
import json
import os
import ssl
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import yaml


class Api:
    """The cluster of $KUBECONFIG."""

    def __init__(self) -> None:
        config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
        [context] = [each["context"] for each in config["contexts"] if each["name"] == config["current-context"]]
        [cluster] = [each["cluster"] for each in config["clusters"] if each["name"] == context["cluster"]]
        [user] = [each["user"] for each in config["users"] if each["name"] == context["user"]]
        self.namespace = os.environ.get("PODBAY_RIG_NAMESPACE") or context.get("namespace", "default")
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

    def get(self, path: str) -> Any:
        """Returns the object at a path of the API."""
        request = urllib.request.Request(self._server + path, None, self._headers)
        with urllib.request.urlopen(request, timeout=30, context=self._tls) as answer:
            return json.load(answer)

    def delete(self, path: str) -> None:
        """Deletes the object at a path of the API."""
        request = urllib.request.Request(self._server + path, None, self._headers, method="DELETE")
        urllib.request.urlopen(request, timeout=30, context=self._tls).close()
