"""Converts `allow_prefixes`: langchain-k8s compares them with resolved paths, Podbay with those that the agent sees."""

from __future__ import annotations

import posixpath
import uuid


def allowed(prefixes: list[str] | None, root: str | None, *, offloads: bool) -> list[str] | None:
    """Returns Podbay's `allow_prefixes`, with `root` the virtual root if there is one.

    An empty list allows nothing. With `offloads`, large outputs can be saved in spite of the prefixes.
    """
    if prefixes is None:
        return None
    found = [posixpath.normpath(prefix) for prefix in prefixes]
    if root is not None:
        found = [seen for prefix in found if (seen := _seen(prefix, posixpath.normpath(root))) is not None]
    if offloads:
        found.append("/large_tool_results")
    # Podbay takes an empty list for no limit, so name a place that nobody knows.
    return found or [f"/{uuid.uuid4().hex}"]


def _seen(prefix: str, root: str) -> str | None:
    """Returns a resolved prefix as it is seen under a virtual root; None if it is outside."""
    if _below(root, prefix):
        return "/"
    return prefix.removeprefix(root) if _below(prefix, root) else None


def _below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
