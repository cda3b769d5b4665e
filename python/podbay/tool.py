"""A sandbox as a tool: an agent with files of its own runs Python in a fresh sandbox, once per call.

    from deepagents import create_deep_agent
    from podbay.tool import PROMPT_SUFFIX, execute_python_tool

    prompt = "You are a data analyst." + PROMPT_SUFFIX
    agent = create_deep_agent(model, tools=[execute_python_tool()], system_prompt=prompt)

The agent's virtual files (`state["files"]`) are in `/app` when the code runs; what the code writes is gone afterwards.
Where files and installed packages shall stay from call to call, give the agent a sandbox as its backend instead:
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
"""Where the virtual files are, and where the code starts."""

PROMPT_SUFFIX = (
    "\n\nYou have a tool `execute_python(code)`. It runs Python 3 in a fresh sandbox: nothing that one call leaves "
    "behind (variables, files, installed packages) is there for the next one, so put into one call what belongs "
    "together and print what you want to know. Before each call your virtual files are copied into `/app/`, the "
    "working directory: a file `data.csv` is `/app/data.csv` there. The answer is `exit=<code>` and, below it, "
    "everything that was printed."
)
"""What to add to the system prompt of an agent that has the tool."""


def seed_files(files: Mapping[str, Any] | None) -> list[tuple[str, bytes]]:
    """What virtual files are in the sandbox: absolute paths below `/app`, and their bytes.

    A file is a mapping with `content` (a text, or the list of its lines) and perhaps `encoding` (`utf-8` or `base64`),
    or just a text or bytes. A relative path is one below `/app`, and so is an absolute one: `/data.csv`, as Deep Agents
    names its virtual files, is `/app/data.csv`, and `/app/data.csv` stays what it is.
    """
    return [(_place(path), _content(path, file)) for path, file in (files or {}).items()]


def _place(path: str) -> str:
    below = path.removeprefix(UPLOAD_DIR) if path == UPLOAD_DIR or path.startswith(UPLOAD_DIR + "/") else path
    place = posixpath.normpath(f"{UPLOAD_DIR}/{below.lstrip('/')}")
    if not place.startswith(UPLOAD_DIR + "/") or "\0" in place:
        raise ValueError(f"The virtual file {path!r} can't be in {UPLOAD_DIR}: use a path below it")
    return place


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
            f"The virtual file {path!r} has content of the type {type(content).__name__}: use text or bytes"
        )
    match encoding:
        case "utf-8":
            # What can't be encoded stays visible; one odd character must not stop the whole call.
            return content.encode("utf-8", "surrogatepass")
        case "base64":
            try:
                return base64.b64decode(content, validate=True)
            except binascii.Error as error:
                raise ValueError(f"The virtual file {path!r} isn't valid base64: {error}") from error
        case _:
            raise ValueError(f"The virtual file {path!r} has the encoding {encoding!r}: use utf-8 or base64")


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
    """A LangChain tool that runs Python code in a sandbox of its own.

    Each call makes a sandbox, copies `state["files"]` into it, runs the code and removes the sandbox, also when the
    call is cancelled. It answers `exit=<code>`, a line break, and what was printed; what went wrong on our side it
    tells the model in the same way, as text. Settings are those of `podbay.Sandbox`; `timeout` (300 s) and
    `output_limit` (1 MiB) bound the code.
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
    "`exit=<code>` and everything that was printed. Nothing is kept from one call to the next."
)


# How many seconds a sandbox has beyond those of the code: for its start, and for large files.
_SPARE = 600


class _Runs:
    """The runs of one tool: they share a provider and nothing else."""

    def __init__(self, mode: str | None, python: str, bounds: dict[str, Any], settings: dict[str, Any]) -> None:
        self._mode = mode
        # Unbuffered, so that output and errors come in the order in which they were printed.
        self._command = [python, "-u", "-"]
        self._bounds = {key: value for key, value in bounds.items() if value is not None}
        self._settings = settings
        # For when this process is killed and can't delete what it made.
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
        # The working directory is a volume that the sandbox's user may write to, whoever owns the image's /app.
        return podbay.Provider(self._mode, **{"workdir": UPLOAD_DIR, **self._settings})

    @contextmanager
    def _sandbox(self) -> Iterator[podbay.Sandbox]:
        # Named here, so that it can be deleted also when the making of it was interrupted.
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
        """A sandbox on this machine has a read-only root, so that /app has to be brought along."""
        mounts = [*self._settings.get("mounts", ()), f"{directory}:{UPLOAD_DIR}:rw"]
        return podbay.Sandbox(self._mode, id=name, ttl=self._ttl, **{**self._settings, "mounts": mounts})


@contextmanager
def _left_behind(name: str) -> Iterator[None]:
    """The code has run and its answer counts, also when the sandbox can't be deleted: its time ends it then."""
    try:
        yield
    except podbay.PodbayError as error:
        logger.warning("the sandbox %s couldn't be deleted and ends by itself: %s", name, error)


def _name() -> str:
    return f"pb-{secrets.token_hex(8)}"


def _directory() -> tempfile.TemporaryDirectory[str]:
    # No part of a mount's path may be a symbolic link.
    return tempfile.TemporaryDirectory(prefix="podbay-app-", dir=os.path.realpath(tempfile.gettempdir()))


def _files(state: dict[str, Any] | None) -> list[tuple[str, bytes]]:
    # A graph's state is a mapping, or an object with attributes where its schema is a class.
    return seed_files(state.get("files") if isinstance(state, Mapping) else getattr(state, "files", None))


def _answer(result: podbay.ExecResult) -> str:
    notes = ""
    if result.timed_out:
        notes += "\n[The code took too long and was ended.]"
    elif result.out_of_memory:
        notes += "\n[The code ran out of memory.]"
    if result.truncated:
        notes += "\n[The middle of the output was left out.]"
    return f"exit={result.exit_code}\n{result.output}{notes}"


def _failure(error: Exception) -> str:
    return f"exit=1\nThe sandbox couldn't run the code: {error}"
