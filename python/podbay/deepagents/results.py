"""Converts results of a sandbox to those of Deep Agents."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from deepagents.backends.protocol import FileData, FileInfo, GlobResult, GrepMatch, GrepResult, LsResult, ReadResult
from deepagents.backends.sandbox import MAX_BINARY_BYTES, MAX_OUTPUT_BYTES, TRUNCATION_MSG
from deepagents.backends.utils import EMPTY_CONTENT_WARNING

from podbay.deepagents.failures import logger

if TYPE_CHECKING:
    from typing import TypedDict

    from deepagents.backends.protocol import GlobTruncationReason

    import podbay

    class Page(TypedDict):
        """Limits of a page of a file."""

        max_bytes: int
        reserve_bytes: int
        max_binary_bytes: int


PAGE: Final[Page] = {
    "max_bytes": MAX_OUTPUT_BYTES,
    # Room for the notice that is appended to a truncated page.
    "reserve_bytes": len(TRUNCATION_MSG.encode()),
    "max_binary_bytes": MAX_BINARY_BYTES,
}


def printable(name: str) -> str:
    """Replaces bytes that aren't UTF-8, which would end the run when the message to the model is encoded."""
    if name.isascii():
        return name
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        # A file can have any timestamp; one outside of the years 1 to 9999 can't be formatted.
        return datetime.fromtimestamp(0, UTC).isoformat()


def ls(found: podbay.LsResult) -> LsResult:
    """Converts a directory listing."""
    if found.partial is not None:
        logger.warning("%s has more entries than are listed: %s", found.path, found.partial.detail)
    return LsResult(
        entries=[
            FileInfo(
                path=printable(entry.path),
                is_dir=entry.is_dir,
                size=entry.size,
                modified_at=_moment(entry.modified),
            )
            for entry in found.entries
        ]
    )


def read(page: podbay.ReadResult) -> ReadResult:
    """Converts a page of a file."""
    if page.empty:
        return ReadResult(file_data=FileData(content=EMPTY_CONTENT_WARNING, encoding="utf-8"))
    if page.encoding == "binary":
        return ReadResult(file_data=FileData(content=base64.b64encode(page.content).decode(), encoding="base64"))
    if page.no_lines_requested:
        return ReadResult(file_data=FileData(content="", encoding="utf-8"), no_lines_requested=True)
    content = page.text + TRUNCATION_MSG if page.truncated else page.text
    return ReadResult(
        file_data=FileData(content=content, encoding="utf-8"),
        total_lines=page.total_lines,
        start_line=page.start_line,
        end_line=page.end_line,
        next_offset=page.next_offset,
    )


def glob(found: podbay.GlobResult) -> GlobResult:
    """Converts the result of a glob. Paths are absolute, because the SDK's permissions compare only those."""
    matches = [
        FileInfo(path=printable(match.path), is_dir=False, size=match.size, modified_at=_moment(match.modified))
        for match in found.matches
    ]
    if found.partial is None:
        return GlobResult(matches=matches)
    # "unreadable" tells the model that a narrower pattern won't help.
    reason: GlobTruncationReason = "unreadable" if found.partial.unreadable else "budget"
    return GlobResult(matches=matches, truncated=True, truncation_reason=reason)


def grep(found: podbay.GrepResult) -> GrepResult:
    """Converts the result of a grep. Unreadable files alone don't mean that the search stopped early."""
    matches = [GrepMatch(path=printable(match.path), line=match.line, text=match.text) for match in found.matches]
    partial = found.partial
    early = partial is not None and (partial.limit_reached or partial.reason == "budget")
    if partial is not None and partial.unreadable:
        logger.info("a search in %s skipped %d unreadable entries", found.path, partial.unreadable)
    return GrepResult(matches=matches, truncated=early)
