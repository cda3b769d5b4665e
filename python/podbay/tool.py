"""A sandbox as a tool: each call runs Python in a fresh sandbox, with a copy of the agent's virtual files.

    from deepagents import create_deep_agent
    from podbay.tool import PROMPT_SUFFIX, execute_python_tool

    prompt = "You are a data analyst." + PROMPT_SUFFIX
    agent = create_deep_agent(model, tools=[execute_python_tool()], system_prompt=prompt)

The agent's virtual files (`state["files"]`) are copied to `/app` before the code runs; what it writes is discarded.
To keep files and installed packages between calls, give the agent a sandbox as its backend instead:
`podbay.deepagents` and `podbay.langgraph`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import posixpath
import secrets
import tempfile
from collections.abc import Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

try:
    from langchain_core.tools import BaseTool, StructuredTool
    from langgraph.prebuilt import InjectedState
except ModuleNotFoundError as missing:
    message = f"podbay.tool needs the package {missing.name}: pip install 'podbay[deepagents]'"
    raise ModuleNotFoundError(message, name=missing.name) from missing

import podbay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

logger = logging.getLogger(__name__)

__all__ = ["PROMPT_SUFFIX", "UPLOAD_DIR", "execute_python_tool", "seed_files"]

UPLOAD_DIR = "/app"
"""The directory of the virtual files, and the working directory of the code."""

PROMPT_SUFFIX = (
    "\n\nYou have a tool `execute_python(code)`. It runs Python 3 in a fresh sandbox: nothing (variables, files, "
    "installed packages) is kept from one call to the next, so do everything that belongs together in one call and "
    "print what you want to know. Before each call your virtual files are copied to `/app/`, the working directory: "
    "`data.csv` becomes `/app/data.csv`. The result is `exit=<code>`, followed by everything that was printed."
)
"""Text to append to the system prompt of an agent that has the tool."""


def seed_files(files: Mapping[str, Any] | None) -> list[tuple[str, bytes]]:
    """Converts virtual files to the files of the sandbox: absolute paths below `/app`, and their bytes.

    A file is a mapping with `content` (a text or a list of lines) and optionally `encoding` (`utf-8` or `base64`), or
    just a text or bytes. Relative and absolute paths alike are placed below `/app`: `/data.csv`, as Deep Agents names
    its virtual files, becomes `/app/data.csv`; `/app/data.csv` stays as it is.
    """
    return [(_target(path), _content(path, file)) for path, file in (files or {}).items()]


def _target(path: str) -> str:
    below = path.removeprefix(UPLOAD_DIR) if path == UPLOAD_DIR or path.startswith(UPLOAD_DIR + "/") else path
    target = posixpath.normpath(f"{UPLOAD_DIR}/{below.lstrip('/')}")
    if not target.startswith(UPLOAD_DIR + "/") or "\0" in target:
        raise ValueError(f"the virtual file {path!r} is outside of {UPLOAD_DIR}: use a path below it")
    return target


def _content(path: str, file: Any) -> bytes:
    encoding = "utf-8"
    content = file
    if hasattr(file, "get"):
        content, encoding = file.get("content", ""), file.get("encoding") or "utf-8"
    if isinstance(content, list):
        content = "\n".join(content)
    if isinstance(content, bytes):
        return content
    if not isinstance(content, str):
        raise ValueError(
            f"the content of the virtual file {path!r} is of type {type(content).__name__}: use text or bytes"
        )
    match encoding:
        case "utf-8":
            # Keep lone surrogates: one odd character must not fail the whole call.
            return content.encode("utf-8", "surrogatepass")
        case "base64":
            try:
                return base64.b64decode(content, validate=True)
            except binascii.Error as error:
                raise ValueError(f"the virtual file {path!r} isn't valid base64: {error}") from error
        case _:
            raise ValueError(f"the virtual file {path!r} has the unknown encoding {encoding!r}: use utf-8 or base64")


def execute_python_tool(
    mode: str | None = None,
    *,
    name: str = "execute_python",
    description: str | None = None,
    python: str = "python3",
    timeout: float | None = None,
    output_limit: int | None = None,
    **settings: Any,
) -> BaseTool:
    """Returns a LangChain tool that runs Python code in a fresh sandbox.

    Each call creates a sandbox, copies `state["files"]` into it, runs the code and deletes the sandbox, even if the
    call is cancelled. The tool returns `exit=<code>`, a line break and what was printed; failures of the sandbox are
    reported to the model in the same format. Settings are those of `podbay.Sandbox`; `timeout` (default 300 s) and
    `output_limit` (default 1 MiB) limit the code.
    """
    runs = _Runs(mode, python, {"timeout": timeout, "output_limit": output_limit}, settings)
    return StructuredTool.from_function(
        func=runs.run,
        coroutine=runs.arun,
        name=name,
        description=description or _DESCRIPTION,
        infer_schema=True,
    )


_DESCRIPTION = (
    "Runs Python 3 code in a fresh sandbox, with your virtual files in /app (the working directory), and returns "
    "`exit=<code>` and everything that was printed. Nothing is kept between calls."
)


# How many seconds a sandbox may live beyond the timeout of the code: for its start, and for uploading large files.
_SPARE = 600


class _Runs:
    """Runs the calls of one tool, which share only a provider."""

    def __init__(self, mode: str | None, python: str, bounds: dict[str, Any], settings: dict[str, Any]) -> None:
        self._mode = mode
        # Unbuffered, so that output and errors appear in the order in which they were printed.
        self._command = [python, "-u", "-"]
        self._bounds = {key: value for key, value in bounds.items() if value is not None}
        self._settings = settings
        # Ends the sandbox if this process is killed and can't delete it.
        self._ttl = settings.pop("ttl", None) or self._bounds.get("timeout", 300) + _SPARE

    def run(self, code: str, state: Annotated[dict[str, Any] | None, InjectedState] = None) -> str:
        try:
            files = _files(state)
            with self._sandbox() as sandbox:
                for uploaded in sandbox.upload(files):
                    if uploaded.error is not None:
                        return _failure(uploaded.error)
                return _answer(sandbox.run(self._command, stdin=code, cwd=UPLOAD_DIR, merge=True, **self._bounds))
        except (podbay.PodbayError, ValueError) as error:
            return _failure(error)

    async def arun(self, code: str, state: Annotated[dict[str, Any] | None, InjectedState] = None) -> str:
        try:
            files = _files(state)
            async with self._asandbox() as sandbox:
                for uploaded in await sandbox.aupload(files):
                    if uploaded.error is not None:
                        return _failure(uploaded.error)
                return _answer(
                    await sandbox.arun(self._command, stdin=code, cwd=UPLOAD_DIR, merge=True, **self._bounds)
                )
        except (podbay.PodbayError, ValueError) as error:
            return _failure(error)

    @cached_property
    def _provider(self) -> podbay.Provider:
        provider = podbay.Provider(self._mode, **self._settings)
        if provider.mode == "local":
            return provider
        # The working directory is a volume that the sandbox's user can write to, whoever owns the image's /app.
        return podbay.Provider(self._mode, **{"workdir": UPLOAD_DIR, **self._settings})

    @contextmanager
    def _sandbox(self) -> Iterator[podbay.Sandbox]:
        # Named here, so that it can be deleted even if its creation was interrupted.
        provider, name = self._provider, _name()
        try:
            if provider.mode != "local":
                yield provider.get_or_create(name, ttl=self._ttl)
            else:
                with _directory() as directory, self._local(name, directory) as sandbox:
                    yield sandbox
        finally:
            with _left_behind(name):
                provider.delete(name)

    @asynccontextmanager
    async def _asandbox(self) -> AsyncIterator[podbay.Sandbox]:
        provider, name = self._provider, _name()
        try:
            if provider.mode != "local":
                yield await provider.aget_or_create(name, ttl=self._ttl)
                return
            directory = await asyncio.to_thread(_directory)
            try:
                async with self._local(name, directory.name) as sandbox:
                    yield sandbox
            finally:
                await asyncio.to_thread(directory.cleanup)
        finally:
            with _left_behind(name):
                await provider.adelete(name)

    def _local(self, name: str, directory: str) -> podbay.Sandbox:
        """Creates a sandbox on this machine, with /app as a mount because its root is read-only."""
        mounts = [*self._settings.get("mounts", ()), f"{directory}:{UPLOAD_DIR}:rw"]
        return podbay.Sandbox(self._mode, id=name, ttl=self._ttl, **{**self._settings, "mounts": mounts})


@contextmanager
def _left_behind(name: str) -> Iterator[None]:
    """Logs a failed deletion instead of raising it: the code's result still counts, and the TTL ends the sandbox."""
    try:
        yield
    except podbay.PodbayError as error:
        logger.warning("the sandbox %s couldn't be deleted, and will end by its TTL: %s", name, error)


def _name() -> str:
    return f"pb-{secrets.token_hex(8)}"


def _directory() -> tempfile.TemporaryDirectory[str]:
    # A mount's path must not contain symbolic links.
    return tempfile.TemporaryDirectory(prefix="podbay-app-", dir=os.path.realpath(tempfile.gettempdir()))


def _files(state: dict[str, Any] | None) -> list[tuple[str, bytes]]:
    # A graph's state is a mapping, or an object with attributes if its schema is a class.
    return seed_files(state.get("files") if isinstance(state, Mapping) else getattr(state, "files", None))


def _answer(result: podbay.ExecResult) -> str:
    notes = ""
    if result.timed_out:
        notes += "\n[The code timed out and was killed.]"
    elif result.out_of_memory:
        notes += "\n[The code ran out of memory.]"
    if result.truncated:
        notes += "\n[The middle of the output was omitted.]"
    return f"exit={result.exit_code}\n{result.output}{notes}"


def _failure(error: Exception) -> str:
    return f"exit=1\nThe sandbox couldn't run the code: {error}"
