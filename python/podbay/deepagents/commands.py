"""Converts results of commands to those of Deep Agents, with previews of long outputs."""

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
"""How many bytes of output a result has by default. The SDK's test suite requires half of that."""

CAPTURE_LIMIT: Final = 10 << 20
"""How many bytes of a large output are saved to a file by default; the SDK's own default."""

EXCERPTS: Final = 16 << 10
"""How many bytes of an output that is saved to a file are fetched, for the excerpts and some more."""

_LOG_FILE: Final = 16 << 20
"""The size of the first file of a command's log. Later output is in further files."""

# The preview has the format of the SDK's own wrapper, which the tool's description explains to the model.
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
    """How a command ended."""

    exit_code: int | None
    note: str | None

    @staticmethod
    def of(result: podbay.ExecResult, timeout: float) -> Outcome:
        """Returns the outcome of a command that had a timeout of `timeout` seconds."""
        code, note = result.exit_code, None
        if result.info.state == "lost":
            code, note = (
                None,
                "Error: the outcome of the command is unknown, because its supervisor died. It wasn't run again.",
            )
        elif result.info.state == "failed":
            reason = failures.text(result.info.error) if result.info.error else "no reason was given"
            code, note = failures.DENIED_EXIT, f"Error: the command couldn't be started: {reason}"
        elif result.timed_out:
            note = f"Command timed out after {timeout:g} seconds"
        elif result.out_of_memory:
            note = "Command ran out of memory: the kernel killed one of its processes"
        elif result.signal is not None:
            note = f"Command was killed by {result.signal}"
        return Outcome(exit_code=code, note=note)

    def after(self, output: str) -> str:
        """Returns the output followed by the note on a line of its own."""
        if self.note is None:
            return output
        separator = "" if not output or output.endswith("\n") else "\n"
        return f"{output}{separator}{self.note}"


def response(result: podbay.ExecResult, timeout: float) -> ExecuteResponse:
    """Converts a command's result. If its output was too long, the middle is missing."""
    outcome = Outcome.of(result, timeout)
    output = with_gap(result, _log(result)).decode("utf-8", "replace") if result.truncated else result.output
    return ExecuteResponse(output=outcome.after(output), exit_code=outcome.exit_code, truncated=result.truncated)


def inline(result: podbay.ExecResult, timeout: float) -> ExecuteOffloadResult:
    """Converts a result whose output is short enough to return in full."""
    return ExecuteOffloadResult(offloaded=False, response=response(result, timeout))


def preview(result: podbay.ExecResult, saved: podbay.WriteResult, capture: int, timeout: float) -> ExecuteOffloadResult:
    """Converts a result whose output was saved to a file, with the beginning and end of the output."""
    outcome = Outcome.of(result, timeout)
    incomplete = _is_incomplete(result, capture)
    shown, marked = _excerpts(_first(result), _last(result), saved, incomplete=incomplete)
    return ExecuteOffloadResult(
        offloaded=True,
        response=ExecuteResponse(output=outcome.after(shown), exit_code=outcome.exit_code, truncated=incomplete),
        preview_has_truncation_marker=marked,
    )


def omission(result: podbay.ExecResult, capture: int) -> str:
    """Returns the line in place of output that isn't saved, should there be any."""
    # A character that would be cut is left out too.
    least = max(result.output_bytes - capture, result.info.dropped_bytes)
    return f"\n... [at least {least} bytes omitted here] ...\n"


def unsaved(
    result: podbay.ExecResult, timeout: float, path: str, limit: int, failure: Exception
) -> ExecuteOffloadResult:
    """Converts a result whose long output couldn't be saved: what fits of it, so as not to fill the model's context."""
    outcome = Outcome.of(result, timeout)
    half = max(limit, 0) // 2
    reason = failures.text(failure)
    left_out = result.output_bytes - 2 * half
    gap = f"\n... [{left_out} bytes omitted; the full output couldn't be saved to {path}: {reason}] ...\n"
    shown = _head(_first(result), half) + gap + _tail(_last(result), half)
    return ExecuteOffloadResult(
        offloaded=False,
        response=ExecuteResponse(output=outcome.after(shown), exit_code=outcome.exit_code, truncated=True),
    )


def with_gap(result: podbay.ExecResult, log: str | None = None) -> bytes:
    """Returns the output, with a line in place of bytes that were left out."""
    if not result.truncated or result.cut_at is None:
        return result.raw
    where = f"; full output in {log}" if log is not None else ""
    gap = f"\n... [{result.dropped} bytes omitted here{where}] ...\n".encode()
    return result.raw[: result.cut_at] + gap + result.raw[result.cut_at :]


def _log(result: podbay.ExecResult) -> str | None:
    """Returns the file in the sandbox that has the full output, if one file has all of it."""
    complete = result.info.dropped_bytes == 0 and result.output_bytes <= _LOG_FILE
    return result.info.log if complete else None


def _is_incomplete(result: podbay.ExecResult, capture: int) -> bool:
    return result.output_bytes > capture or result.info.dropped_bytes > 0


def _first(result: podbay.ExecResult) -> bytes:
    """Returns the beginning of the output: as much of it as was fetched."""
    return result.raw if result.cut_at is None else result.raw[: result.cut_at]


def _last(result: podbay.ExecResult) -> bytes:
    """Returns the end of the output: as much of it as was fetched."""
    return result.raw if result.cut_at is None else result.raw[result.cut_at :]


def _excerpts(beginning: bytes, end: bytes, saved: podbay.WriteResult, *, incomplete: bool) -> tuple[str, bool]:
    """Returns the excerpts, and whether a marker between them counts the omitted lines."""
    omitted = (saved.line_breaks or 0) - 2 * _LINES
    if omitted <= 0:
        # Few but long lines: there is no middle to omit.
        shown = _head(beginning, 2 * _BYTES)
        if saved.size > 2 * _BYTES:
            notice = _CLIPPED_INCOMPLETE if incomplete else _CLIPPED
            shown += f"\n{notice.format(bytes=saved.size)}\n"
        return shown, False
    first, last = _first_lines(beginning), _last_lines(end)
    shown = _head(first, _BYTES)
    if len(first) > _BYTES or len(last) > _BYTES:
        shown += f"\n{_CUT_LINES}\n"
    shown += TRUNCATION_MARKER_TEMPLATE.format(omitted_lines=omitted) + "\n"
    return shown + _tail(last, _BYTES), True


def _first_lines(data: bytes) -> bytes:
    end = 0
    for _ in range(_LINES):
        found = data.find(b"\n", end)
        if found < 0:
            # They are longer than what was fetched, which is more than is shown of them.
            return data
        end = found + 1
    return data[:end]


def _last_lines(data: bytes) -> bytes:
    # A trailing line break ends the last line and doesn't start another.
    start = len(data) - data.endswith(b"\n")
    for _ in range(_LINES):
        start = data.rfind(b"\n", 0, max(start, 0))
        if start < 0:
            return data
    return data[start + 1 :]


def _head(data: bytes, limit: int) -> str:
    """Decodes the first bytes, without a character that is cut."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data[:limit], final=len(data) <= limit)


def _tail(data: bytes, limit: int) -> str:
    """Decodes the last bytes, without a character that is cut."""
    start = max(len(data) - limit, 0)
    # A character has at most three continuation bytes.
    while start and start < len(data) and data[start] & 0xC0 == 0x80 and start <= len(data) - limit + 3:
        start += 1
    return data[start:].decode("utf-8", "replace")
