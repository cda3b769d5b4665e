"""The API of agentic-sandbox, the older SDK of agent-sandbox, on top of Podbay.

from podbay.compat.agentic_sandbox import SandboxClient

with SandboxClient(template_name="python", namespace="agents") as client:
    print(client.run("echo hello").stdout)
"""

from podbay.compat.agentic_sandbox.client import SandboxClient

__all__ = ["SandboxClient"]
