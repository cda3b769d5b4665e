"""Measures the binding's overhead: the time that Python sees, minus the time that the core needs for the operation.

The core's time is in the audit log, but writing the log takes time too. So each call is made twice in a row: in a
sandbox without a log, which is timed, and in one with a log, which tells the core's time. The overhead is the
difference of the two medians.
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
    """Prints minimum, p50 and p95 of the total time, the core's p50 and the overhead, in microseconds."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    core = sorted([entry["duration_us"] for entry in entries if "duration_us" in entry][-len(seen) :])
    total = sorted(nanoseconds / 1e3 for nanoseconds in seen)
    cells = [total[int(len(total) * part)] for part in (0, 0.5, 0.95)]
    cells += [core[len(core) // 2], total[len(total) // 2] - core[len(core) // 2]]
    print(f"| {name} | {' | '.join(f'{cell:.0f}' for cell in cells)} | {len(seen)} |")


def calls(call: Callable[[podbay.Sandbox], object], plain: podbay.Sandbox, logged: podbay.Sandbox) -> list[int]:
    """Times many calls, in nanoseconds."""
    seen = []
    for _ in range(COUNT):
        begun = time.perf_counter_ns()
        call(plain)
        seen.append(time.perf_counter_ns() - begun)
        call(logged)
    return seen


async def awaited(
    call: Callable[[podbay.Sandbox], Coroutine[Any, Any, object]], plain: podbay.Sandbox, logged: podbay.Sandbox
) -> list[int]:
    """Times many coroutines, in nanoseconds."""
    seen = []
    for _ in range(COUNT):
        begun = time.perf_counter_ns()
        await call(plain)
        seen.append(time.perf_counter_ns() - begun)
        await call(logged)
    return seen


def main() -> None:
    """Measures the operations that agents use most, sync and async."""
    print("\n## Overhead of the Python binding on a local sandbox (microseconds)\n")
    print("| operation | total: min | p50 | p95 | core: p50 | overhead | n |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "audit.jsonl"
        with podbay.Sandbox() as plain, podbay.Sandbox(audit_log=log) as logged:
            text = "line of text\n" * 300
            for sandbox in (plain, logged):
                sandbox.write("file", text)
            both = (plain, logged)
            row("read", calls(lambda sandbox: sandbox.read("file"), *both), log)
            row("write", calls(lambda sandbox: sandbox.write("written", text), *both), log)
            row("stat", calls(lambda sandbox: sandbox.stat("file"), *both), log)
            row("run true", calls(lambda sandbox: sandbox.run("true"), *both), log)
            row("aread", asyncio.run(awaited(lambda sandbox: sandbox.aread("file"), *both)), log)
            row("awrite", asyncio.run(awaited(lambda sandbox: sandbox.awrite("written", text), *both)), log)
            row("astat", asyncio.run(awaited(lambda sandbox: sandbox.astat("file"), *both)), log)
            row("arun true", asyncio.run(awaited(lambda sandbox: sandbox.arun("true"), *both)), log)


if __name__ == "__main__":
    main()
