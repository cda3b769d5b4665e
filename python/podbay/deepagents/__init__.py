"""A Deep Agents backend in which every file operation and command is one request to a sandbox, sync and async.

    >>> from podbay.deepagents import PodbaySandbox
    >>> with PodbaySandbox() as sandbox:
    ...     print(sandbox.execute("echo $((2 + 2))").output, end="")
    4

Pass it to `create_deep_agent(backend=…)`. Requires the extra `deepagents`: `pip install 'podbay[deepagents]'`.
"""

try:
    import deepagents.backends  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name is None or missing.name.split(".")[0] != "deepagents":
        raise
    message = "podbay.deepagents needs the package deepagents: pip install 'podbay[deepagents]'"
    raise ModuleNotFoundError(message, name="deepagents") from missing

from podbay.deepagents.backend import PodbaySandbox
from podbay.deepagents.thread import MissingThread, thread_id

__all__ = ["ARTEFACT_PATHS", "MissingThread", "PodbaySandbox", "thread_id"]

ARTEFACT_PATHS = ("/large_tool_results", "/conversation_history", "/blobs")
"""Where Deep Agents itself writes. If `allow_prefixes` leaves these out, it can't offload large results to files."""
