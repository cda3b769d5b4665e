"""README section "Direct execution"."""

from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.models import SandboxLocalTunnelConnectionConfig
from langchain_k8s import KubernetesSandbox

client = SandboxClient(
    connection_config=SandboxLocalTunnelConnectionConfig(),
)
handle = client.create_sandbox(
    template=TEMPLATE,
    namespace=NAMESPACE,
)

backend = KubernetesSandbox(sandbox=handle)

# Execute commands (with optional per-call timeout)
resp = backend.execute("echo 'Hello from K8s!'")
assert (resp.output, resp.exit_code) == ("Hello from K8s!\n", 0)

resp = backend.execute("sleep 60", timeout=1)
assert resp.exit_code == 124
# The command was killed, not run again, and the sandbox is the same.
assert backend.execute("pgrep -x sleep || echo none").output.strip() == "none"

# Upload files
backend.upload_files([("/workspace/script.py", b"print('hello')\n"), ("/workspace/big", b"x" * 300_000)])
assert backend.execute("python3 /workspace/script.py").output == "hello\n"

# Download files
results = backend.download_files(["/workspace/script.py", "/workspace/big", "relative"])
assert results[0].content == b"print('hello')\n"
assert len(results[1].content) == 300_000
assert results[2].error == "invalid_path"

client.delete_sandbox(handle.claim_name, NAMESPACE)
