"""Compares Deep Agents backends in plain pods, operation by operation, in one run.

    podbay                podbay.deepagents.PodbaySandbox(mode="raw")
    langchain-kubernetes  its KubernetesSandbox, mode raw
    scripts               Deep Agents' own BaseSandbox, which runs a script by one pod exec per operation

Each has its own pod, with the same image and limits, and reaches it through the API server. They take turns operation
by operation, so that other load on the machine affects all of them alike. Prints Markdown tables; `--check` fails if a
target is missed.

    python operations.py --image localhost/debian:1 --namespace default
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack

from measuring import FILES, PATIENCE, SLOW, Side, creations, missed, rounds, small_files, transfers
from pods import langchain_kubernetes, podbay_sandbox, scripts

ROOT = "/tmp/bench"
LEGEND = """
Each backend has a pod of its own with the same image and limits, and reaches it through the API server. "podbay" is
`PodbaySandbox(mode="raw")`, langchain-kubernetes is in its mode raw, and "scripts" is the base class of Deep Agents,
`BaseSandbox`: each operation is a script in one API exec.
"""


def main() -> None:
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(description="Compares Deep Agents backends in plain pods.")
    parser.add_argument("--image", default="localhost/debian:1")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--transfers", type=int, default=5)
    parser.add_argument("--creations", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    options = parser.parse_args()
    where = (options.image, options.namespace)
    makers = {
        "podbay": lambda: podbay_sandbox(*where),
        "langchain-kubernetes": lambda: langchain_kubernetes(*where, PATIENCE),
        "scripts": lambda: scripts(*where),
    }
    operations = small_files(ROOT)
    with ExitStack() as pods:
        sides = [Side(name, pods.enter_context(make())) for name, make in makers.items()]
        for side in sides:
            side.prepare(ROOT)
        print(f"\n## Pods: small files, {FILES} per directory (milliseconds)\n{LEGEND}")
        print(rounds(sides, operations, options.turns, PATIENCE))
        print("\n## Pods: transfers (milliseconds)\n")
        print(rounds(sides, transfers(ROOT), options.transfers, SLOW))
    print("\n## Pods: from nothing to the first command's result (milliseconds)\n")
    print(creations(makers, options.creations, lambda: None))
    if misses := missed(sides, operations):
        print("\nMissed targets:\n\n" + "\n".join(f"- {miss}" for miss in misses))
        if options.check:
            sys.exit(1)


if __name__ == "__main__":
    main()
