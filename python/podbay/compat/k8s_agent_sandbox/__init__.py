"""The API of k8s-agent-sandbox on top of Podbay, for programs that create their sandboxes with it.

    from podbay.compat.k8s_agent_sandbox import SandboxClient

The real package works too: `podbay.compat.langchain_k8s` and the other modules take its handles. This one needs neither
kubectl nor the router, and still has `create_sandbox(template=…)`, which the package dropped in 1.0.
"""

from podbay.compat.k8s_agent_sandbox.client import SandboxClient
from podbay.compat.k8s_agent_sandbox.sandbox import Sandbox

__all__ = ["Sandbox", "SandboxClient"]
