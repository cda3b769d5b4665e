"""The API of langchain-agent-sandbox on top of Podbay, as documented there.

    from podbay.compat.langchain_agent_sandbox import AgentSandboxBackend

docs/moving/langchain-agent-sandbox.md describes what changes, and which bugs are gone.
"""

import podbay.deepagents  # noqa: F401 - first, because its error says what to install if something is missing
from podbay.compat.langchain_agent_sandbox.backend import AgentSandboxBackend, WarmPoolBackend
from podbay.compat.langchain_agent_sandbox.factory import create_sandbox_backend_factory
from podbay.compat.langchain_agent_sandbox.policy import SandboxPolicyWrapper

__all__ = ["AgentSandboxBackend", "SandboxPolicyWrapper", "WarmPoolBackend", "create_sandbox_backend_factory"]
