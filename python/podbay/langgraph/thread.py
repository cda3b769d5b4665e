"""Which thread a run belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.runnables.config import ensure_config

from podbay.errors import PodbayError

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

__all__ = ["MissingThread", "thread_id"]


class MissingThread(PodbayError, RuntimeError):
    """A run has no thread, and so there is no telling which sandbox is its own."""

    def __init__(self, what: str = "This graph") -> None:
        super().__init__(
            f"{what} needs a thread_id to find the thread's sandbox: "
            "invoke it with config={'configurable': {'thread_id': '…'}}"
        )
        self.what = what

    def __reduce__(self) -> tuple[type[MissingThread], tuple[str]]:
        return type(self), (self.what,)


def thread_id(config: RunnableConfig | None = None, *, what: str = "This graph") -> str:
    """The thread of a config, or of the run that this is called in; `MissingThread` when there is none."""
    found = (ensure_config(config).get("configurable") or {}).get("thread_id")
    # A UUID object is a common thread id too; nothing at all, or an empty text, is a forgotten one.
    if found is None or not str(found):
        raise MissingThread(what)
    return str(found)
