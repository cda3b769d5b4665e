"""README section "Pattern 2: Sandbox as a tool (`execute_python`)"."""

import base64
from typing import Annotated

from deepagents import create_deep_agent
from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.models import SandboxLocalTunnelConnectionConfig
from langchain_core.tools import tool
from langchain_kubernetes_agent_sandbox import KubernetesAgentSandbox
from langgraph.prebuilt import InjectedState

UPLOAD_DIR = "/app"


def _new_sandbox() -> KubernetesAgentSandbox:
    client = SandboxClient(connection_config=SandboxLocalTunnelConnectionConfig())
    raw = client.create_sandbox(template=TEMPLATE, namespace=NAMESPACE)
    return KubernetesAgentSandbox(sandbox=raw)


_run: dict = {}


def _get_or_spawn_run_sandbox(vfs_files: dict) -> KubernetesAgentSandbox:
    sb = _run.get("sandbox")
    if sb is not None and sb.sandbox.is_active:
        return sb

    sb = _new_sandbox()
    _run["sandbox"] = sb

    payload: list[tuple[str, bytes]] = []
    for path, data in (vfs_files or {}).items():
        content = data.get("content", "")
        encoding = data.get("encoding", "utf-8")
        raw = base64.b64decode(content) if encoding == "base64" else content.encode("utf-8")
        sb_path = path if path.startswith("/") else f"{UPLOAD_DIR}/{path}"
        payload.append((sb_path, raw))
    if payload:
        sb.upload_files(payload)
    return sb


def _terminate_run_sandbox() -> None:
    sb = _run.pop("sandbox", None)
    if sb is not None:
        sb.sandbox.terminate()


@tool
def execute_python(code: str, state: Annotated[dict, InjectedState]) -> str:
    """Execute a Python 3 snippet in an ephemeral Kubernetes sandbox."""
    sb = _get_or_spawn_run_sandbox(state.get("files") or {})
    b64 = base64.b64encode(code.encode("utf-8")).decode("ascii")
    cmd = f'python3 -c \'import base64,sys;exec(compile(base64.b64decode("{b64}").decode(),"<agent>","exec"))\''
    resp = sb.execute(cmd)
    return f"exit={resp.exit_code}\n{resp.output}"


agent = create_deep_agent(
    model=llm,
    tools=[execute_python],
    system_prompt="You are a helpful assistant.",
)

try:
    result = agent.invoke(
        {
            "messages": [{"role": "user", "content": "python print(open('/app/data.csv').read().split(','))"}],
            "files": {"/app/data.csv": {"content": "a,b", "encoding": "utf-8"}},
        }
    )
    assert result["messages"][-1].text.startswith("exit=0\n['a', 'b']\n"), result
finally:
    _terminate_run_sandbox()
