"""Measures the binding's overhead: the time that Python sees, minus the time that the audit log has for the operation.

The overhead includes writing the line of the audit log, so the numbers are upper bounds.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import podbay

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

COUNT = 2000


def row(name: str, seen: list[int], log: Path) -> None:
    """Prints minimum, p50 and p95 of the total time and of the overhead, in microseconds."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    entries = [entry for entry in entries if "duration_us" in entry][-len(seen) :]
    added = sorted(total / 1e3 - entry["duration_us"] for total, entry in zip(seen, entries, strict=True))
    total = sorted(nanoseconds / 1e3 for nanoseconds in seen)
    cells = [f"{figures[int(len(figures) * part)]:.0f}" for figures in (total, added) for part in (0, 0.5, 0.95)]
    print(f"| {name} | {' | '.join(cells)} | {len(seen)} |")


def calls(call: Callable[[], object]) -> list[int]:
    """Times many calls, in nanoseconds."""
    seen = []
    for _ in range(COUNT):
        begun = time.perf_counter_ns()
        call()
        seen.append(time.perf_counter_ns() - begun)
    return seen


async def awaited(call: Callable[[], Coroutine[Any, Any, object]]) -> list[int]:
    """Times many coroutines, in nanoseconds."""
    seen = []
    for _ in range(COUNT):
        begun = time.perf_counter_ns()
        await call()
        seen.append(time.perf_counter_ns() - begun)
    return seen


def main() -> None:
    """Measures the operations that agents use most, sync and async."""
    print("\n## Overhead of the Python binding on a local sandbox (microseconds)\n")
    print("| operation | total: min | p50 | p95 | overhead: min | p50 | p95 | n |\n|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "audit.jsonl"
        with podbay.Sandbox(audit_log=log) as sandbox:
            text = "line of text\n" * 300
            sandbox.write("file", text)
            row("read", calls(lambda: sandbox.read("file")), log)
            row("write", calls(lambda: sandbox.write("written", text)), log)
            row("stat", calls(lambda: sandbox.stat("file")), log)
            row("run true", calls(lambda: sandbox.run("true")), log)
            row("aread", asyncio.run(awaited(lambda: sandbox.aread("file"))), log)
            row("awrite", asyncio.run(awaited(lambda: sandbox.awrite("written", text))), log)
            row("astat", asyncio.run(awaited(lambda: sandbox.astat("file"))), log)
            row("arun true", asyncio.run(awaited(lambda: sandbox.arun("true"))), log)


if __name__ == "__main__":
    main()
