"""A Deep Agents backend: every file operation and command is one request to a sandbox, sync and async.

    >>> from podbay.deepagents import PodbaySandbox
    >>> with PodbaySandbox() as sandbox:
    ...     print(sandbox.execute("echo $((2 + 2))").output, end="")
    4

Pass it to `create_deep_agent(backend=…)`. It needs the extra `deepagents`: `pip install 'podbay[deepagents]'`.
"""

try:
    import deepagents.backends  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name is None or missing.name.split(".")[0] != "deepagents":
        raise
    message = "podbay.deepagents needs the package deepagents: pip install 'podbay[deepagents]'"
    raise ModuleNotFoundError(message, name="deepagents") from missing

from podbay.deepagents.backend import PodbaySandbox
from podbay.deepagents.conversations import thread_id

__all__ = ["ARTEFACT_PATHS", "PodbaySandbox", "thread_id"]

ARTEFACT_PATHS = ("/large_tool_results", "/conversation_history", "/blobs")
"""Where Deep Agents itself writes. Rules that leave these out keep it from moving large results out of the way."""
