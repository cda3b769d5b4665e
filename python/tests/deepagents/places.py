"""Where the tests run: on this machine, and on the rig's cluster when there is one."""

from __future__ import annotations

import os

import pytest

RIG = {name: value for name, value in os.environ.items() if name.startswith("PODBAY_RIG")}
"""What is known of the cluster. Read when the tests are collected: they themselves run without Podbay's variables."""

IMAGES = {
    "raw-debian": ("PODBAY_RIG_IMAGE_DEBIAN", "localhost/debian:1", {}),
    "raw-busybox": ("PODBAY_RIG_IMAGE_BUSYBOX", "localhost/busybox:1", {}),
    "raw-read-only": ("PODBAY_RIG_IMAGE_NONROOT", "localhost/nonroot:1", {"read_only_root": True}),
}
"""The rig's images: a variable that may name another, the name, and how its pods are."""

PLACES = ["local", *IMAGES]


def settings(place: str) -> dict[str, object]:
    """What makes a sandbox in that place, or the end of the test with the reason why there can't be one."""
    if place == "local":
        return {}
    if not RIG.get("PODBAY_RIG"):
        pytest.skip("PODBAY_RIG isn't set: no cluster (docs/testing.md)")
    variable, image, more = IMAGES[place]
    # In the account's own namespace, and of a size that many fit on the rig's one node.
    return {"mode": "raw", "image": RIG.get(variable, image), "memory_request": "16Mi", "cpu_request": "10m", **more}
