"""Compares three Deep Agents backends on a cluster, operation by operation, in one run.

    podbay                podbay.deepagents.PodbaySandbox(mode="raw")
    langchain-kubernetes  its KubernetesSandbox, mode raw
    scripts               Deep Agents' own BaseSandbox, which runs a script by one pod exec per operation

Each has its own pod, with the same image and limits. They take turns operation by operation, so that other load on the
machine affects all of them alike. Prints Markdown tables; `--check` fails if a target is missed.

    python operations.py --image localhost/debian:1 --namespace default
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import overhead
from pods import langchain_kubernetes, podbay_sandbox, scripts

if TYPE_CHECKING:
    from collections.abc import Callable

    from deepagents.backends.sandbox import BaseSandbox

FILES = 20
ROOT = "/workspace/bench"
PATIENCE = 5
"""An operation that takes more seconds than this counts as broken."""


@dataclass
class Operation:
    """An operation to measure, and a check of its result."""

    name: str
    run: Callable[[BaseSandbox, int], Any]
    good: Callable[[Any], bool]
    target: float


OPERATIONS = [
    Operation("execute `true`", lambda s, _: s.execute("true"), lambda r: r.exit_code == 0, 10),
    Operation("execute `echo`", lambda s, n: s.execute(f"echo {n}"), lambda r: r.output.strip().isdigit(), 10),
    Operation("read", lambda s, n: s.read(f"{ROOT}/f{n % FILES}.py"), lambda r: "def f" in r.file_data["content"], 20),
    Operation("write", lambda s, n: s.write(f"{ROOT}/new-{n}.txt", "text\n" * 20), lambda r: r.error is None, 20),
    Operation(
        "edit",
        lambda s, n: s.edit(f"{ROOT}/counter", f"<{n}>", f"<{n + 1}>"),
        lambda r: r.occurrences == 1,
        20,
    ),
    Operation("ls", lambda s, _: s.ls(f"{ROOT}/tree"), lambda r: len(r.entries) == FILES, 20),
    Operation("glob", lambda s, _: s.glob("**/*.py", f"{ROOT}/tree"), lambda r: len(r.matches) == FILES, 20),
    Operation("grep", lambda s, _: s.grep("needle", f"{ROOT}/tree"), lambda r: len(r.matches) == FILES, 20),
    Operation(
        "upload 3 files",
        lambda s, n: s.upload_files([(f"{ROOT}/up-{n}-{i}", b"x" * 1000) for i in range(3)]),
        lambda r: [response.error for response in r] == [None] * 3,
        20,
    ),
    Operation(
        "download 3 files",
        lambda s, _: s.download_files([f"{ROOT}/f{i}.py" for i in range(3)]),
        lambda r: all(b"def f" in response.content for response in r),
        20,
    ),
]


@dataclass
class Side:
    """A backend and its measurements."""

    name: str
    backend: BaseSandbox
    seconds: dict[str, list[float]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def measure(self, operation: Operation, turn: int) -> None:
        """Measures one turn. An operation that failed isn't tried again."""
        if operation.name in self.broken:
            return
        begun = time.perf_counter()
        try:
            result = operation.run(self.backend, turn)
            took = time.perf_counter() - begun
            if not operation.good(result):
                self.broken[operation.name] = " ".join(str(result).split())[:120]
        except Exception as error:
            took = time.perf_counter() - begun
            self.broken[operation.name] = f"{type(error).__name__}: {error}"[:120]
        if took > PATIENCE:
            self.broken.setdefault(operation.name, f"took {took:.0f} s")
        self.seconds.setdefault(operation.name, []).append(took)


def prepare(side: Side) -> None:
    """Creates the same files for each backend, by a command because uploads may not work."""
    source = "def f():\\n    return 1  # needle\\n"
    made = side.backend.execute(
        f"mkdir -p {ROOT}/tree && cd {ROOT} && printf '<0>' > counter && "
        f"for i in $(seq 0 {FILES - 1}); do printf '{source}' > f$i.py; printf '{source}' > tree/f$i.py; done"
    )
    if made.exit_code != 0:
        raise SystemExit(f"{side.name}: can't create the files: {made.output}")


def table(sides: list[Side]) -> str:
    """Returns min, p50 and p95 in milliseconds, n, and how many times faster Podbay's p50 is."""
    lines = [
        "| operation | backend | min | p50 | p95 | n | podbay is faster by |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for operation in OPERATIONS:
        ours = statistics.median(sides[0].seconds[operation.name])
        for side in sides:
            if (why := side.broken.get(operation.name)) is not None:
                lines.append(f"| {operation.name} | {side.name} | | | | 0 | doesn't work: {why.replace('|', '/')} |")
                continue
            times = sorted(side.seconds[operation.name])
            p95 = times[min(len(times) - 1, round(0.95 * (len(times) - 1)))]
            times_faster = "" if side is sides[0] else f"{statistics.median(times) / ours:.0f} x"
            figures = " | ".join(f"{1000 * value:.2f}" for value in (times[0], statistics.median(times), p95))
            lines.append(f"| {operation.name} | {side.name} | {figures} | {len(times)} | {times_faster} |")
    return "\n".join(lines)


def missed(sides: list[Side]) -> list[str]:
    """Returns the missed targets, compared with the backends on which an operation works."""
    found = []
    for operation in OPERATIONS:
        if operation.name in sides[0].broken:
            found.append(f"{operation.name}: {sides[0].broken[operation.name]}")
            continue
        ours = statistics.median(sides[0].seconds[operation.name])
        for side in sides[1:]:
            if operation.name in side.broken:
                continue
            ratio = statistics.median(side.seconds[operation.name]) / ours
            if ratio < operation.target:
                found.append(f"{operation.name}: {ratio:.1f} x {side.name}, target {operation.target:.0f} x")
    return found


def main() -> None:
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(description="Compares Deep Agents backends on a cluster.")
    parser.add_argument("--image", default="localhost/debian:1")
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--check", action="store_true", help="fail if a target is missed")
    options = parser.parse_args()
    with ExitStack() as pods:
        sides = [
            Side("podbay", pods.enter_context(podbay_sandbox(options.image, options.namespace))),
            Side(
                "langchain-kubernetes",
                pods.enter_context(langchain_kubernetes(options.image, options.namespace, PATIENCE)),
            ),
            Side("scripts", pods.enter_context(scripts(options.image, options.namespace))),
        ]
        for side in sides:
            prepare(side)
        for turn in range(options.turns):
            for operation in OPERATIONS:
                for side in sides:
                    side.measure(operation, turn)
    print(f"\n## Operations on small files, {FILES} per directory (milliseconds)\n\n{table(sides)}")
    print("\n## Overhead of the Python binding on a local sandbox (microseconds)\n")
    overhead.main()
    if misses := missed(sides):
        print("\nMissed targets:\n\n" + "\n".join(f"- {miss}" for miss in misses))
        if options.check:
            sys.exit(1)


if __name__ == "__main__":
    main()
