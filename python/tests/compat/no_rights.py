"""Uses the sandbox of a real handle of k8s-agent-sandbox, in a process that has no rights on any cluster.

python no_rights.py PACKAGE CLAIM SANDBOX NAMESPACE ROUTER
"""

from __future__ import annotations

import sys

from k8s_agent_sandbox.k8s_helper import K8sHelper
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig
from k8s_agent_sandbox.sandbox import Sandbox
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException

from podbay.compat.langchain_agent_sandbox import AgentSandboxBackend
from podbay.compat.langchain_k8s import KubernetesSandbox
from podbay.compat.langchain_kubernetes_agent_sandbox import KubernetesAgentSandbox

package, claim, sandbox, namespace, router = sys.argv[1:]
# Unless it gets a client, the SDK insists on a cluster that it can find by itself, though it needn't ask it.
try:
    K8sHelper()
except ConfigException:
    helper = K8sHelper(api_client=ApiClient(Configuration(host="http://127.0.0.1:9")))
else:
    raise AssertionError("there is a cluster")
config = SandboxDirectConnectionConfig(api_url=router)
handle = Sandbox(claim, sandbox, namespace, config, k8s_helper=helper)
backend = {
    "langchain_k8s": lambda: KubernetesSandbox(sandbox=handle),
    "langchain_kubernetes_agent_sandbox": lambda: KubernetesAgentSandbox(sandbox=handle),
    "langchain_agent_sandbox": lambda: AgentSandboxBackend(handle, allow_absolute_paths=True),
}[package]()
read = backend.execute("cat /app/file")
assert read.exit_code == 0, read.output
written = backend.upload_files([("/app/answer", b"read " + read.output.encode())])
assert written[0].error is None, written
