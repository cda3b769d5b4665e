"""The API of langchain-kubernetes-agent-sandbox on top of Podbay.

    from podbay.compat.langchain_kubernetes_agent_sandbox import KubernetesAgentSandbox

docs/moving/langchain-kubernetes-agent-sandbox.md describes what changes, and which bugs are gone.
"""

import podbay.deepagents  # noqa: F401 - first, because its error says what to install if something is missing
from podbay.compat.langchain_kubernetes_agent_sandbox.sandbox import KubernetesAgentSandbox

__all__ = ["KubernetesAgentSandbox"]
