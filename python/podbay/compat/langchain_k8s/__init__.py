"""The API of langchain-k8s on top of Podbay: that of 0.4, which its README describes, and that of 0.5 to 0.7.

    from podbay.compat.langchain_k8s import KubernetesSandbox

docs/moving/langchain-k8s.md describes what changes, and which bugs are gone.
"""

import podbay.deepagents  # noqa: F401 - first, because its error says what to install if something is missing
from podbay.compat.langchain_k8s.factory import create_kubernetes_sandbox
from podbay.compat.langchain_k8s.sandbox import KubernetesSandbox, SandboxdBackend

__version__ = "0.7.1"
"""The version of langchain-k8s whose API this is."""

__all__ = ["KubernetesSandbox", "SandboxdBackend", "__version__", "create_kubernetes_sandbox"]
