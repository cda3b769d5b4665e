"""langchain-kubernetes on Podbay: the same names, and what its documentation promises.

    from podbay.compat.langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

docs/moving/langchain-kubernetes.md says what changes and what was broken before.
"""

import podbay.deepagents  # noqa: F401 - first, because it says what to install when something is missing
from podbay.compat.langchain_kubernetes._provider_base import SandboxError, SandboxNotFoundError, SandboxProvider
from podbay.compat.langchain_kubernetes._types import (
    CleanupResult,
    ProviderStats,
    SandboxInfo,
    SandboxListResponse,
    WarmPoolStatus,
)
from podbay.compat.langchain_kubernetes.config import KubernetesProviderConfig
from podbay.compat.langchain_kubernetes.manager import KubernetesSandboxManager
from podbay.compat.langchain_kubernetes.provider import KubernetesProvider
from podbay.compat.langchain_kubernetes.sandbox import KubernetesSandbox

__all__ = [
    "CleanupResult",
    "KubernetesProvider",
    "KubernetesProviderConfig",
    "KubernetesSandbox",
    "KubernetesSandboxManager",
    "ProviderStats",
    "SandboxError",
    "SandboxInfo",
    "SandboxListResponse",
    "SandboxNotFoundError",
    "SandboxProvider",
    "WarmPoolStatus",
]
