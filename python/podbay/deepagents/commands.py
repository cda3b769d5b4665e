"""What a command printed and how it ended, in the shapes of Deep Agents; and previews of what is too long to show."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from deepagents.backends.protocol import ExecuteOffloadResult, ExecuteResponse
from deepagents.backends.utils import TRUNCATION_MARKER_TEMPLATE

from podbay.deepagents import failures

if TYPE_CHECKING:
    import podbay

OUTPUT_LIMIT: Final = 1 << 20
"""How many bytes of output a result has when nothing else is said. The SDK's suite wants half of it."""

CAPTURE_LIMIT: Final = 10 << 20
"""How many bytes of a large output are kept as a file when the caller doesn't say; the SDK's number."""

_LOG_FILE: Final = 16 << 20
"""What of a command's log is in the file that its info names; more is in others beside it."""

# The preview has the form that the SDK's own wrapper gives it: the tool's description tells the model how to read it.
_LINES: Final = 5
_BYTES: Final = 2000
_CUT_LINES: Final = (
    "... [the excerpts above and below are byte-capped, so the lines bordering this marker may be cut mid-line] ..."
)
_CLIPPED: Final = "... [output clipped here; {bytes} bytes total, full output at the path above] ..."
_CLIPPED_INCOMPLETE: Final = (
    "... [output clipped here; capture stopped at its {bytes}-byte limit, "
    "so the file at the path above is also incomplete] ..."
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command ended, apart from what it printed."""

    exit_code: int | None
    note: str | None

    @staticmethod
    def of(result: podbay.ExecResult, timeout: float) -> Outcome:
        """The outcome of a command that could run for `timeout` seconds."""
        code, note = result.exit_code, None
        if result.info.state == "lost":
            code, note = (
                None,
                "Error: the outcome of the command is unknown: what looked after it is gone. It wasn't run again.",
            )
        elif result.info.state == "failed":
            reason = failures.text(result.info.error) if result.info.error else "no reason was given"
            code, note = failures.DENIED_EXIT, f"Error: the command couldn't be started: {reason}"
        elif result.timed_out:
            note = f"Command timed out after {timeout:g} seconds"
        elif result.out_of_memory:
            note = "Command ran out of memory: the kernel killed a process of it"
        elif result.signal is not None:
            note = f"Command was ended by {result.signal}"
        return Outcome(exit_code=code, note=note)

    def after(self, output: str) -> str:
        """The output with the note on a line of its own."""
        if self.note is None:
            return output
        separator = "" if not output or output.endswith("\n") else "\n"
        return f"{output}{separator}{self.note}"


def response(result: podbay.ExecResult, timeout: float) -> ExecuteResponse:
    """What a command printed, whole or with its middle left out."""
    outcome = Outcome.of(result, timeout)
    output = whole(result, _log(result)).decode("utf-8", "replace") if result.truncated else result.output
    return ExecuteResponse(output=outcome.after(output), exit_code=outcome.exit_code, truncated=result.truncated)


def inline(result: podbay.ExecResult, timeout: float) -> ExecuteOffloadResult:
    """An output that is small enough to be shown."""
    return ExecuteOffloadResult(offloaded=False, response=response(result, timeout))


def preview(result: podbay.ExecResult, data: bytes, timeout: float) -> ExecuteOffloadResult:
    """Beginning and end of an output that was kept as a file."""
    outcome = Outcome.of(result, timeout)
    shown, marked = _excerpts(data, incomplete=result.truncated)
    return ExecuteOffloadResult(
        offloaded=True,
        response=ExecuteResponse(output=outcome.after(shown), exit_code=outcome.exit_code, truncated=result.truncated),
        preview_has_truncation_marker=marked,
    )


def unkept(
    result: podbay.ExecResult, data: bytes, timeout: float, path: str, limit: int, failure: Exception
) -> ExecuteOffloadResult:
    """An output too large to be shown that couldn't be kept: what fits of it, lest it fills the model's context."""
    outcome = Outcome.of(result, timeout)
    half = max(limit, 0) // 2
    reason = failures.text(failure)
    gap = f"\n... [{len(data) - 2 * half} bytes left out: they couldn't be kept at {path}: {reason}] ...\n"
    shown = _head(data, half) + gap + _tail(data, half)
    return ExecuteOffloadResult(
        offloaded=False,
        response=ExecuteResponse(output=outcome.after(shown), exit_code=outcome.exit_code, truncated=True),
    )


def whole(result: podbay.ExecResult, log: str | None = None) -> bytes:
    """The output as it came, with a line where bytes were left out of the result."""
    if not result.truncated or result.cut_at is None:
        return result.raw
    where = f"; the file {log} has all of it" if log is not None else ""
    gap = f"\n... [{result.dropped} bytes left out here{where}] ...\n".encode()
    return result.raw[: result.cut_at] + gap + result.raw[result.cut_at :]


def _log(result: podbay.ExecResult) -> str | None:
    """The file in the sandbox with the whole output, while it is one file."""
    complete = result.info.dropped_bytes == 0 and result.output_bytes <= _LOG_FILE
    return result.info.log if complete else None


def _excerpts(data: bytes, *, incomplete: bool) -> tuple[str, bool]:
    """The excerpts, and whether there is a marker between them that counts lines."""
    omitted = data.count(b"\n") - 2 * _LINES
    if omitted <= 0:
        # Few, long lines: there is no middle to leave out.
        shown = _head(data, 2 * _BYTES)
        if len(data) > 2 * _BYTES:
            notice = _CLIPPED_INCOMPLETE if incomplete else _CLIPPED
            shown += f"\n{notice.format(bytes=len(data))}\n"
        return shown, False
    first, last = _first_lines(data), _last_lines(data)
    shown = _head(first, _BYTES)
    if len(first) > _BYTES or len(last) > _BYTES:
        shown += f"\n{_CUT_LINES}\n"
    shown += TRUNCATION_MARKER_TEMPLATE.format(omitted_lines=omitted) + "\n"
    return shown + _tail(last, _BYTES), True


def _first_lines(data: bytes) -> bytes:
    end = 0
    for _ in range(_LINES):
        end = data.find(b"\n", end) + 1
    return data[:end]


def _last_lines(data: bytes) -> bytes:
    # A break at the very end ends the last line; it doesn't begin another.
    start = len(data) - data.endswith(b"\n")
    for _ in range(_LINES):
        start = data.rfind(b"\n", 0, start)
    return data[start + 1 :]


def _head(data: bytes, limit: int) -> str:
    """The first bytes as text; a character that is cut is left out."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data[:limit], final=len(data) <= limit)


def _tail(data: bytes, limit: int) -> str:
    """The last bytes as text; a character that is cut is left out."""
    start = max(len(data) - limit, 0)
    # A character has at most three bytes after its first.
    while start and start < len(data) and data[start] & 0xC0 == 0x80 and start <= len(data) - limit + 3:
        start += 1
    return data[start:].decode("utf-8", "replace")
