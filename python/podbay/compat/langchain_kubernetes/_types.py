"""Results of the provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class SandboxInfo:
    """A sandbox in a list. Times are ISO 8601 in UTC; `status` is running, warm, pending or terminated."""

    id: str
    namespace: str
    thread_id: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    created_at: str | None = None
    last_activity: str | None = None
    status: str | None = None


@dataclass
class SandboxListResponse:
    """One page of a list. If it has a `cursor`, pass that to the next call to get more."""

    sandboxes: list[SandboxInfo]
    cursor: str | None = None

    def __iter__(self) -> Iterator[SandboxInfo]:
        return iter(self.sandboxes)

    def __len__(self) -> int:
        return len(self.sandboxes)

    def __bool__(self) -> bool:
        # In langchain-kubernetes it isn't a container, so it must be true even if it is empty.
        return True


@dataclass
class CleanupResult:
    """Which sandboxes were deleted because they had expired, and how many were kept."""

    deleted: list[str] = field(default_factory=list)
    kept: int = 0


@dataclass
class WarmPoolStatus:
    """How many pods of the warm pool are available and in use, and how many should be available."""

    available: int
    active: int
    total: int
    target: int


@dataclass
class ProviderStats:
    """How many sandboxes there are, and how many threads have one."""

    total: int
    running: int
    warm: int
    idle: int
    thread_ids: int
