"""The API of langchain-kubernetes on top of Podbay, as documented there.

    from podbay.compat.langchain_kubernetes import KubernetesProvider, KubernetesProviderConfig

docs/moving/langchain-kubernetes.md describes what changes, and which bugs are gone.
"""

import podbay.deepagents  # noqa: F401 - first, because its error says what to install if something is missing
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
