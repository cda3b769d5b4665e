"""Compares backends for agent-sandbox in the cluster's own network, each in a pod of the stock Python runtime.

    podbay, pod address   podbay.compat.langchain_k8s, at the pod's address
    podbay, exec          the same through pods/exec
    langchain-k8s         the real one, whose SDK speaks HTTP to the runtime at the pod's address
    k8s-agent-sandbox     the SDK alone

They take turns operation by operation, as in operations.py. Prints Markdown tables; `--check` fails if a target is
missed.

    python claims.py --pool python --namespace default
"""

from __future__ import annotations

import argparse
import base64
import os
import shlex
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from measuring import PATIENCE, SLOW, Operation, Side, creations, missed, rounds, small_files, transfers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BASE = "/app"
"""The directory that paths of the runtime's own API are relative to."""
ROOT = f"{BASE}/bench"
LARGE_OUTPUT = 8 << 20
LEGEND = """
Each backend has a claim on the same pool, whose pods run agent-sandbox's stock Python runtime. "podbay" is
`podbay.compat.langchain_k8s`, at the pod's own address with a key or through `pods/exec`. langchain-k8s and the SDK
that it uses, k8s-agent-sandbox, speak HTTP to the runtime at the pod's address.
"""
# langchain-k8s on the same network path.
ON_FILES, ON_COMMANDS = 15, 1.4


def podbay_backend(pool: str, namespace: str, connection: str) -> Any:
    """Podbay's replacement for langchain-k8s."""
    from podbay.compat.langchain_k8s import KubernetesSandbox

    return KubernetesSandbox(
        warmpool_name=pool, namespace=namespace, connection_mode=connection, enable_capture_offload=True
    )


def langchain_k8s_backend(pool: str, namespace: str) -> Any:
    """The real langchain-k8s, on the same network path: the pod's address."""
    from k8s_agent_sandbox.models import SandboxInClusterConnectionConfig
    from langchain_k8s import KubernetesSandbox

    return KubernetesSandbox(
        warmpool_name=pool,
        namespace=namespace,
        connection_config=SandboxInClusterConnectionConfig(),
        command_timeout=SLOW,
    )


class SdkBackend:
    """The SDK's operations in the form of a backend. The runtime has no shell, so commands start one."""

    def __init__(self, pool: str, namespace: str) -> None:
        from k8s_agent_sandbox import SandboxClient
        from k8s_agent_sandbox.models import SandboxInClusterConnectionConfig

        self._client = SandboxClient(SandboxInClusterConnectionConfig())
        self._where = (pool, namespace)
        self._sandbox: Any = None

    def __enter__(self) -> SdkBackend:
        self._sandbox = self._client.create_sandbox(*self._where)
        return self

    def __exit__(self, *args: object) -> None:
        self._sandbox.terminate()

    def execute(self, command: str) -> Any:
        """Runs a command."""
        done = self._sandbox.commands.run(f"sh -c {shlex.quote(command)}")
        return SimpleNamespace(exit_code=done.exit_code, output=done.stdout + done.stderr)

    def read(self, path: str) -> Any:
        """Reads a whole file."""
        return SimpleNamespace(file_data={"content": self._sandbox.files.read(_relative(path)).decode()})

    def write(self, path: str, content: str) -> Any:
        """Writes a file."""
        self._sandbox.files.write(_relative(path), content)
        return SimpleNamespace(error=None)

    def ls(self, path: str) -> Any:
        """Lists a directory."""
        return SimpleNamespace(entries=self._sandbox.files.list(_relative(path)))

    def upload_files(self, files: list[tuple[str, bytes]]) -> Any:
        """Writes files."""
        for path, content in files:
            self._sandbox.files.write(_relative(path), content)
        return [SimpleNamespace(error=None) for _ in files]

    def download_files(self, paths: list[str]) -> Any:
        """Reads files."""
        return [SimpleNamespace(content=self._sandbox.files.read(_relative(path)), error=None) for path in paths]


def _relative(path: str) -> str:
    return path.removeprefix(f"{BASE}/")


def offloads() -> list[Operation]:
    """A command whose output is saved to a file in the sandbox: kept there, and fetched and written back."""
    command = f"head -c {LARGE_OUTPUT} /dev/zero | tr '\\0' x"
    path = f"{ROOT}/output"

    def kept(side: Any, _: int) -> Any:
        return side.execute_with_offload(command, path, max_inline_bytes=80_000)

    def fetched(side: Any, _: int) -> Any:
        sandbox = side._only
        result = sandbox.run(command, merge=True, output_limit=10 << 20)
        sandbox.write(path, result.raw)
        return SimpleNamespace(offloaded=True)

    return [
        Operation("8 MiB of output to a file in the sandbox", "execute_with_offload", kept, lambda r: r.offloaded),
        Operation("the same, fetched and written back", "execute", fetched, lambda r: r.offloaded),
    ]


def targets(operations: list[Operation]) -> list[Operation]:
    """Sets what has to be reached, compared with langchain-k8s at the pod's address."""
    for operation in operations:
        operation.target = ON_COMMANDS if operation.method == "execute" else ON_FILES
    return operations


def full(pool: str, namespace: str) -> Callable[[], None]:
    """Returns a function that waits until the pool has a sandbox ready."""
    from kubernetes import client, config

    config.load_kube_config()
    pools = client.CustomObjectsApi()
    where = {"group": "extensions.agents.x-k8s.io", "version": "v1beta1", "plural": "sandboxwarmpools"}

    def wait() -> None:
        for _ in range(600):
            status = pools.get_namespaced_custom_object(name=pool, namespace=namespace, **where).get("status", {})
            if status.get("readyReplicas", 0) >= 1:
                # The controller's other work for the sandbox before shouldn't be measured with this one.
                time.sleep(0.5)
                return
            time.sleep(0.1)
        raise SystemExit("the pool doesn't fill")

    return wait


@contextmanager
def private_key() -> Iterator[None]:
    """A key, with which podbayd can be reached at the pod's address."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("podbay-private-v1." + base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip("="))
        file.flush()
        os.environ["PODBAY_CLUSTER_PRIVATE_KEY_FILE"] = file.name
        yield


def main() -> None:
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(description="Compares backends for agent-sandbox in the cluster's network.")
    parser.add_argument("--pool", default="python")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--transfers", type=int, default=5)
    parser.add_argument("--creations", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    options = parser.parse_args()
    where = (options.pool, options.namespace)
    wait = full(*where)
    makers = {
        "podbay, pod address": lambda: podbay_backend(*where, "in-cluster"),
        "podbay, exec": lambda: podbay_backend(*where, "exec"),
        "langchain-k8s": lambda: langchain_k8s_backend(*where),
        "k8s-agent-sandbox": lambda: SdkBackend(*where),
    }
    operations = targets(small_files(ROOT))
    with private_key(), ExitStack() as pods:
        sides = []
        for name, make in makers.items():
            wait()
            sides.append(Side(name, pods.enter_context(make())))
            sides[-1].prepare(ROOT)
        print(f"\n## Claims, in the cluster's network: small files (milliseconds)\n{LEGEND}")
        print(rounds(sides, operations, options.turns, PATIENCE))
        print("\n## Claims, in the cluster's network: transfers (milliseconds)\n")
        print(rounds(sides, transfers(ROOT), options.transfers, SLOW))
        print("\n## Claims: large output of a command (milliseconds)\n")
        print(rounds(sides[:2], offloads(), 2 * options.transfers, SLOW))
    print("\n## Claims: from a warm pool to the first command's result (milliseconds)\n")
    with private_key():
        # What is measured is a sandbox from the pool, not the wait for one.
        print(creations(makers, options.creations, wait))
    if misses := missed([sides[0], sides[2]], operations):
        print("\nMissed targets:\n\n" + "\n".join(f"- {miss}" for miss in misses))
        if options.check:
            sys.exit(1)


if __name__ == "__main__":
    main()
