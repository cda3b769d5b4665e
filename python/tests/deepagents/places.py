"""Where the tests run: on this machine, and on the rig's cluster if there is one."""

from __future__ import annotations

import os

import pytest

RIG = {name: value for name, value in os.environ.items() if name.startswith("PODBAY_RIG")}
"""Whether there is a cluster. Read during collection, because the tests run without Podbay's variables."""

IMAGES = {
    "raw-debian": ("PODBAY_RIG_IMAGE_DEBIAN", "localhost/debian:1", {}),
    "raw-busybox": ("PODBAY_RIG_IMAGE_BUSYBOX", "localhost/busybox:1", {}),
    "raw-read-only": ("PODBAY_RIG_IMAGE_NONROOT", "localhost/nonroot:1", {"read_only_root": True}),
}
"""The rig's images: the variable that overrides one, its name, and the settings of its pods."""

CLAIMS = "agent-sandbox"
"""The rig's template of agent-sandbox, in the namespace of an account that may claim from it."""

PLACES = ["local", *IMAGES, CLAIMS]


def claims() -> dict[str, object]:
    """Returns the settings for mode agent-sandbox; skips the test if the rig hasn't got it."""
    kubeconfig = os.environ.get("CLAIMS_KUBECONFIG")
    if not RIG.get("PODBAY_RIG") or not kubeconfig:
        pytest.skip("CLAIMS_KUBECONFIG isn't set: no cluster with agent-sandbox (docs/testing.md)")
    return {"mode": CLAIMS, "template_name": "python", "kubeconfig": kubeconfig}


def settings(place: str) -> dict[str, object]:
    """Returns the settings for a sandbox there; skips the test if there can't be one."""
    if place == "local":
        return {}
    if not RIG.get("PODBAY_RIG"):
        pytest.skip("PODBAY_RIG isn't set: no cluster (docs/testing.md)")
    if place == CLAIMS:
        return claims()
    variable, image, more = IMAGES[place]
    # In the account's namespace, and small enough that many fit on the rig's only node.
    return {"mode": "raw", "image": RIG.get(variable, image), "memory_request": "16Mi", "cpu_request": "10m", **more}
