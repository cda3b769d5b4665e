"""README section "Pattern 1: Sandbox as a deepagents backend", and "Configuring the command timeout"."""

from deepagents import create_deep_agent
from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.models import SandboxLocalTunnelConnectionConfig
from langchain_kubernetes_agent_sandbox import KubernetesAgentSandbox

SANDBOX_TEMPLATE = TEMPLATE
SANDBOX_NAMESPACE = NAMESPACE


def build_sandbox() -> KubernetesAgentSandbox:
    client = SandboxClient(connection_config=SandboxLocalTunnelConnectionConfig())
    raw_sandbox = client.create_sandbox(
        template=SANDBOX_TEMPLATE,
        namespace=SANDBOX_NAMESPACE,
    )
    return KubernetesAgentSandbox(sandbox=raw_sandbox)


sandbox = build_sandbox()
try:
    agent = create_deep_agent(
        model=llm,
        backend=sandbox,
    )

    result = agent.invoke(
        {
            "messages": [
                {"role": "user", "content": "run echo a b | wc -w > /tmp/count && cat /tmp/count && echo $HOME"},
            ],
        }
    )
    assert result["messages"][-1].text.startswith("2\n/"), result

    assert sandbox.upload_files([("/app/data.csv", b"1,2\n")])[0].error is None
    assert sandbox.execute("cat /app/data.csv").output == "1,2\n"
    assert [each.content for each in sandbox.download_files(["/app/data.csv"])] == [b"1,2\n"]
    assert sandbox.download_files(["data.csv"])[0].error == "invalid_path"
    both = sandbox.execute("echo out; echo err >&2; exit 3")
    assert (both.output, both.exit_code) == ("out\nerr\n", 3)
    assert sandbox.id == sandbox.sandbox.sandbox_id

    sandbox = KubernetesAgentSandbox(sandbox=sandbox.sandbox, timeout=1)
    late = sandbox.execute("sleep 30")
    assert late.exit_code == 124
    assert "timed out after 1" in late.output
    assert sandbox.execute("sleep 2; echo done", timeout=600).output == "done\n"
    assert sandbox.sandbox.is_active
finally:
    # When you're done with the session:
    sandbox.sandbox.terminate()
assert not sandbox.sandbox.is_active
