"""Settings as dataclasses, under the names that they have in `podbay.toml`.

What is None isn't set: the environment (`PODBAY_…`), `podbay.toml` and the defaults have their say, in that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

__all__ = ["LocalConfig", "RawConfig"]


@dataclass(frozen=True, kw_only=True)
class LocalConfig:
    """How sandboxes on this machine shall be. Sizes are bytes or texts such as "512MiB", times seconds or "2h"."""

    home: str | None = None
    env: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    ttl: float | str | timedelta | None = None
    idle_ttl: float | str | timedelta | None = None
    workspace: str | None = None
    mounts: Sequence[str] | None = None
    network: Literal["none", "host", "host-unfenced"] | None = None
    isolation: Literal["namespaces", "landlock"] | None = None
    memory: int | str | None = None
    cpu: float | None = None
    processes: int | None = None
    disk: int | str | None = None
    descriptors: int | None = None


@dataclass(frozen=True, kw_only=True)
class RawConfig:
    """How sandboxes on a cluster shall be: plain pods, nothing to install."""

    env: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    ttl: float | str | timedelta | None = None
    idle_ttl: float | str | timedelta | None = None
