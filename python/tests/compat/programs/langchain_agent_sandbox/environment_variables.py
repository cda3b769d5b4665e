"""README section "Environment Variables"."""

import os

from langchain_agent_sandbox import AgentSandboxBackend

os.environ.update(LANGCHAIN_SANDBOX_TEMPLATE=TEMPLATE, LANGCHAIN_NAMESPACE=NAMESPACE, LANGCHAIN_ROOT_DIR="/workspace")
try:
    with AgentSandboxBackend.from_template() as backend:
        assert backend.write("/a", "x").error is None
        assert backend.execute("cat /workspace/a").output == "x"
    os.environ["LANGCHAIN_API_URL"] = ROUTER
    with AgentSandboxBackend.from_template() as backend:
        assert backend.execute("echo hi").output == "hi\n"
    # A parameter wins over the environment.
    os.environ["LANGCHAIN_API_URL"] = "http://127.0.0.1:9"
    with AgentSandboxBackend.from_template(gateway_name=GATEWAY, gateway_namespace=NAMESPACE) as backend:
        assert backend.execute("echo hi").output == "hi\n"
finally:
    for name in ("SANDBOX_TEMPLATE", "NAMESPACE", "ROOT_DIR", "API_URL"):
        os.environ.pop(f"LANGCHAIN_{name}", None)
