"""Which thread a run belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.runnables.config import ensure_config

from podbay.errors import PodbayError

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

__all__ = ["MissingThread", "required_thread_id", "thread_id"]


class MissingThread(PodbayError, LookupError, RuntimeError):
    """A run has no `thread_id`, so its sandbox can't be determined."""

    def __init__(self, what: str = "This graph") -> None:
        super().__init__(
            f"{what} needs a thread_id to find the thread's sandbox: "
            "invoke it with config={'configurable': {'thread_id': '…'}}"
        )
        self.what = what

    def __reduce__(self) -> tuple[type[MissingThread], tuple[str]]:
        return type(self), (self.what,)


def thread_id(config: RunnableConfig | None = None) -> str | None:
    """Returns the `thread_id` of a config, or of the current LangGraph run; None if there is none.

    Context variables carry the run's config into threads and tasks.
    """
    thread = (ensure_config(config).get("configurable") or {}).get("thread_id")
    # A UUID object is a common thread id too. An empty text counts as a forgotten one.
    return None if thread is None or not str(thread) else str(thread)


def required_thread_id(config: RunnableConfig | None = None, *, what: str = "This graph") -> str:
    """Like `thread_id`, but raises `MissingThread` if there is none; `what` begins the error message."""
    thread = thread_id(config)
    if thread is None:
        raise MissingThread(what)
    return thread
