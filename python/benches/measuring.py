"""What the benchmarks share: operations of backends, measured in turns, and the tables of the results."""

from __future__ import annotations

import os
import signal
import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

FILES = 20
"""How many files a directory has."""
PATIENCE = 5
"""An operation on small files that takes more seconds than this counts as broken."""
SLOW = 60
"""The same for a transfer or a creation."""
SIZES = {"10 KB": 10_000, "1 MB": 1_000_000, "50 MB": 50_000_000}


@dataclass
class Operation:
    """An operation to measure, and a check of its result."""

    name: str
    method: str
    run: Callable[[Any, int], Any]
    good: Callable[[Any], bool]
    target: float = 0
    """How many times faster Podbay should be."""


def small_files(root: str) -> list[Operation]:
    """Returns the operations of agents, on the files that `prepare` creates."""
    return [
        Operation("execute `true`", "execute", lambda s, _: s.execute("true"), lambda r: r.exit_code == 0, 10),
        Operation(
            "execute `echo`", "execute", lambda s, n: s.execute(f"echo {n}"), lambda r: r.output.strip().isdigit(), 10
        ),
        Operation(
            "read",
            "read",
            lambda s, n: s.read(f"{root}/f{n % FILES}.py"),
            lambda r: "def f" in r.file_data["content"],
            20,
        ),
        Operation(
            "write", "write", lambda s, n: s.write(f"{root}/new-{n}.txt", "text\n" * 20), lambda r: r.error is None, 20
        ),
        Operation(
            "edit",
            "edit",
            lambda s, n: s.edit(f"{root}/counter", f"<{n}>", f"<{n + 1}>"),
            lambda r: r.occurrences == 1,
            20,
        ),
        Operation("ls", "ls", lambda s, _: s.ls(f"{root}/tree"), lambda r: len(r.entries) == FILES, 20),
        Operation(
            "glob", "glob", lambda s, _: s.glob("**/*.py", f"{root}/tree"), lambda r: len(r.matches) == FILES, 20
        ),
        Operation("grep", "grep", lambda s, _: s.grep("needle", f"{root}/tree"), lambda r: len(r.matches) == FILES, 20),
        Operation(
            "upload 3 files",
            "upload_files",
            lambda s, n: s.upload_files([(f"{root}/up-{n}-{i}", b"x" * 1000) for i in range(3)]),
            lambda r: [response.error for response in r] == [None] * 3,
            20,
        ),
        Operation(
            "download 3 files",
            "download_files",
            lambda s, _: s.download_files([f"{root}/f{i}.py" for i in range(3)]),
            lambda r: all(b"def f" in response.content for response in r),
            20,
        ),
    ]


def transfers(root: str) -> list[Operation]:
    """Returns uploads and downloads of one file. What is downloaded was made by `prepare`, not by the upload."""
    found = []
    for name, size in SIZES.items():
        content = os.urandom(size)
        up = lambda s, _, size=size, content=content: s.upload_files([(f"{root}/up-{size}", content)])  # noqa: E731
        down = lambda s, _, size=size: s.download_files([f"{root}/down-{size}"])  # noqa: E731
        found.append(Operation(f"upload {name}", "upload_files", up, lambda r: r[0].error is None))
        whole = lambda r, size=size: len(r[0].content or b"") == size  # noqa: E731
        found.append(Operation(f"download {name}", "download_files", down, whole))
    return found


@dataclass
class Side:
    """A backend and its measurements."""

    name: str
    backend: Any
    seconds: dict[str, list[float]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def prepare(self, root: str) -> None:
        """Creates the same files for each backend, by a command because uploads may not work."""
        source = "def f():\\n    return 1  # needle\\n"
        downloads = "; ".join(f"head -c {size} /dev/urandom > down-{size}" for size in SIZES.values())
        made = self.backend.execute(
            f"mkdir -p {root}/tree && cd {root} && printf '<0>' > counter && "
            f"for i in $(seq 0 {FILES - 1}); do printf '{source}' > f$i.py; printf '{source}' > tree/f$i.py; done; "
            f"{downloads}"
        )
        if made.exit_code != 0:
            raise SystemExit(f"{self.name}: can't create the files: {made.output}")

    def measure(self, operation: Operation, turn: int, patience: float) -> None:
        """Measures one turn. An operation that failed isn't tried again."""
        if operation.name in self.broken:
            return
        if not hasattr(self.backend, operation.method):
            self.broken[operation.name] = "has no such operation"
            return
        begun = time.perf_counter()
        try:
            with limit(2 * patience):
                result = operation.run(self.backend, turn)
            took = time.perf_counter() - begun
            if not operation.good(result):
                self.broken[operation.name] = _why(_shown(result), took)
        except Exception as error:
            took = time.perf_counter() - begun
            self.broken[operation.name] = _why(f"{type(error).__name__}: {error}", took)
        if took > patience:
            self.broken.setdefault(operation.name, f"doesn't work: took {took:.0f} s")
        self.seconds.setdefault(operation.name, []).append(took)


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Interrupts what hangs: some backends don't keep to their own time-outs."""

    def interrupt(*_: object) -> None:
        raise TimeoutError(f"no result after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _shown(result: Any) -> str:
    """Returns a result as text, without a file's contents."""
    content = getattr(result[0], "content", None) if isinstance(result, list) and result else None
    return f"only {len(content)} bytes arrived" if content else str(result)


def _why(failure: str, took: float) -> str:
    """Returns a failure in one line; one that was long in coming says so."""
    text = " ".join(failure.split())
    text = text if len(text) <= 120 else text[:117] + "..."
    return f"doesn't work: {text}" + (f" (after {took:.0f} s)" if took > PATIENCE else "")


def rounds(sides: list[Side], operations: list[Operation], turns: int, patience: float) -> str:
    """Measures operations, side by side so that other load affects all alike, and returns the table."""
    for turn in range(turns):
        for operation in operations:
            for side in sides:
                side.measure(operation, turn, patience)
    return table(sides, operations)


def table(sides: list[Side], operations: list[Operation]) -> str:
    """Returns min, p50 and p95 in milliseconds, n, and how many times faster the first side's p50 is."""
    lines = [
        "| operation | backend | min | p50 | p95 | n | podbay is faster by |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for operation in operations:
        for side in sides:
            if (why := side.broken.get(operation.name)) is not None:
                lines.append(f"| {operation.name} | {side.name} | | | | 0 | {why.replace('|', '/')} |")
                continue
            times = sorted(side.seconds[operation.name])
            p95 = times[min(len(times) - 1, round(0.95 * (len(times) - 1)))]
            figures = " | ".join(f"{1000 * value:.2f}" for value in (times[0], statistics.median(times), p95))
            lines.append(
                f"| {operation.name} | {side.name} | {figures} | {len(times)} | {_faster(sides, side, operation)} |"
            )
    return "\n".join(lines)


def _faster(sides: list[Side], side: Side, operation: Operation) -> str:
    ratio = slower(sides, side, operation)
    return "" if ratio is None else f"{ratio:.0f} x" if ratio >= 10 else f"{ratio:.1f} x"


def slower(sides: list[Side], side: Side, operation: Operation) -> float | None:
    """Returns how many times longer a side takes than the first one; None if one of them doesn't work."""
    ours = sides[0]
    if side is ours or operation.name in ours.broken or operation.name in side.broken:
        return None
    return statistics.median(side.seconds[operation.name]) / statistics.median(ours.seconds[operation.name])


def missed(sides: list[Side], operations: list[Operation]) -> list[str]:
    """Returns the missed targets, compared with the backends on which an operation works."""
    found = []
    for operation in operations:
        if operation.name in sides[0].broken:
            found.append(f"{operation.name}: {sides[0].broken[operation.name]}")
        for side in sides[1:]:
            ratio = slower(sides, side, operation)
            if ratio is not None and ratio < operation.target:
                found.append(f"{operation.name}: {ratio:.1f} x {side.name}, target {operation.target:g} x")
    return found


def creations(
    makers: dict[str, Callable[[], AbstractContextManager[Any]]], times: int, ready: Callable[[], None]
) -> str:
    """Measures how long each backend takes from nothing to a command's result, in turns, and returns the table."""
    taken: dict[str, list[float]] = {name: [] for name in makers}
    broken: dict[str, str] = {}
    for _ in range(times):
        for name, make in makers.items():
            if name in broken:
                continue
            ready()
            begun = time.perf_counter()
            try:
                with limit(2 * SLOW), make() as backend:
                    done = backend.execute("true")
                    took = time.perf_counter() - begun
                if done.exit_code != 0:
                    broken[name] = _why(done.output, took)
            except Exception as error:
                took = time.perf_counter() - begun
                broken[name] = _why(f"{type(error).__name__}: {error}", took)
            taken[name].append(took)
    lines = ["| backend | min | p50 | max | n |", "|---|---:|---:|---:|---:|"]
    for name, some in taken.items():
        if name in broken:
            lines.append(f"| {name} | | | | {broken[name].replace('|', '/')} |")
            continue
        figures = " | ".join(f"{1000 * value:.0f}" for value in (min(some), statistics.median(some), max(some)))
        lines.append(f"| {name} | {figures} | {len(some)} |")
    return "\n".join(lines)
