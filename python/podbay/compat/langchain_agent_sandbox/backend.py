"""The sandbox as a Deep Agents backend."""

from __future__ import annotations

import logging
import os
import weakref
from typing import TYPE_CHECKING, Any, Self, TypeVar

from deepagents.backends.protocol import WriteResult

import podbay
from podbay.compat._claims import attachment, claim_id, connection, sdk_settings
from podbay.compat.k8s_agent_sandbox.exceptions import translated
from podbay.compat.langchain_agent_sandbox.results import NumberedText, matches_or_error
from podbay.deepagents import PodbaySandbox, failures
from podbay.deepagents.conversations import SingleSandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from deepagents.backends.protocol import (
        ExecuteResponse,
        FileDownloadResponse,
        FileInfo,
        FileUploadResponse,
        GrepMatch,
    )

    from podbay.deepagents.conversations import Source

    Response = TypeVar("Response", FileUploadResponse, FileDownloadResponse)

# The original's name, for which programs may have set a level.
logger = logging.getLogger("langchain_agent_sandbox.backend")

_NAMESPACE = "default"
_PORT = 8888
_ROOT = "/app"
_TIMEOUT = 120
_CODES = ("file_not_found", "permission_denied", "is_directory", "invalid_path", "policy_denied")
_SESSION = "agent-sandbox.sigs.k8s.io/session-id"


class AgentSandboxBackend(PodbaySandbox):
    """A sandbox of the agent-sandbox controller, with file operations below `root_dir`.

    `client` is what created the sandbox: a handle of k8s-agent-sandbox, or a client of the older agentic-sandbox. With
    `manage_client`, entering this object enters the client, and leaving it leaves the client. `from_template` creates a
    sandbox instead, which is deleted at the end of the `with` block.

    The path `/file.txt` is `/app/file.txt` in the sandbox, unless `allow_absolute_paths` is set. Commands see the
    sandbox's own paths, and start in `root_dir`.
    """

    def __init__(
        self,
        client: Any = None,
        root_dir: str = _ROOT,
        manage_client: bool = False,
        *,
        sandbox: Any = None,
        allow_absolute_paths: bool = False,
        manage_lifecycle: bool | None = None,
        sdk_client: Any = None,
        default_timeout_seconds: float = _TIMEOUT,
        connection_mode: str | None = None,
    ) -> None:
        handle = client if client is not None else sandbox
        if handle is None:
            raise ValueError("pass the client or handle of a sandbox, or use AgentSandboxBackend.from_template(…)")
        self._client = handle
        self._manage_client = manage_client if manage_lifecycle is None else manage_lifecycle
        rules = confinement(root_dir, allow_absolute_paths)

        def attach() -> podbay.Sandbox:
            found = attachment(handle, connection_mode)
            if sdk_client is not None:
                found |= sdk_settings(sdk_client)
            return podbay.Sandbox(**found, **rules)

        self._begin(Deferred(attach), root_dir, default_timeout_seconds)

    @classmethod
    def from_template(
        cls,
        template_name: Any = None,
        namespace: str = _NAMESPACE,
        gateway_name: str | None = None,
        gateway_namespace: str = "default",
        api_url: str | None = None,
        server_port: int = _PORT,
        root_dir: str = _ROOT,
        **kwargs: Any,
    ) -> Self:
        """Returns a backend whose sandbox is created on first use, or at the beginning of a `with` block.

        The first argument can also be a client of k8s-agent-sandbox, with `template_name` or `warmpool_name` after it.
        `gateway_name` and `api_url` go through agent-sandbox's router, which needs a private key (docs/router.md).
        Further arguments: `warmpool_name`, `labels`, `shutdown_after_seconds`, `session_id`, `allow_absolute_paths`,
        `default_timeout_seconds`, `connection_mode`. Parameters that aren't set come from `LANGCHAIN_SANDBOX_TEMPLATE`,
        `LANGCHAIN_NAMESPACE`, `LANGCHAIN_API_URL`, `LANGCHAIN_SERVER_PORT` and `LANGCHAIN_ROOT_DIR`.
        """
        client = None
        if template_name is not None and not isinstance(template_name, str):
            client, template_name = template_name, None
            # from_template(client, "template", …) of the later signature.
            if namespace != _NAMESPACE and "template_name" not in kwargs:
                template_name, namespace = namespace, kwargs.pop("namespace", _NAMESPACE)
        settings, root, timeout = created(
            template_name,
            namespace,
            (gateway_name, gateway_namespace),
            api_url,
            root_dir,
            server_port=server_port,
            client=client,
            **kwargs,
        )
        return cls._of(podbay.Sandbox(**settings), root, timeout)

    @classmethod
    def from_existing(
        cls,
        client: Any,
        claim_name: str,
        namespace: str = _NAMESPACE,
        root_dir: str = _ROOT,
        *,
        allow_absolute_paths: bool = False,
        default_timeout_seconds: float = _TIMEOUT,
        connection_mode: str | None = None,
    ) -> Self:
        """Returns a backend for the sandbox of a claim, which stays when the backend is closed."""
        settings = {
            "mode": "agent-sandbox",
            "id": claim_id(claim_name),
            "attach": True,
            "foreign_claims": True,
            "namespace": namespace,
            **connection(connection_mode, connection_config=getattr(client, "connection_config", None)),
            **sdk_settings(client),
            **confinement(root_dir, allow_absolute_paths),
        }
        return cls._of(podbay.Sandbox(**settings), root_dir, default_timeout_seconds)

    @staticmethod
    def delete_all(
        client: Any = None, namespace: str = _NAMESPACE, label_selector: str | None = None, **kwargs: Any
    ) -> list[str]:
        """Deletes the sandboxes of Podbay in a namespace, optionally only those with labels such as `team=red`."""
        labels = dict(pair.split("=", 1) for pair in label_selector.split(",")) if label_selector else {}
        base = {"mode": "agent-sandbox", "namespace": namespace, "label_prefix": "", **sdk_settings(client), **kwargs}
        provider, deleted = podbay.Provider(**base), []
        with translated():
            while found := list(provider.list(labels=labels)):
                deleted += [listed.id for listed in found if provider.delete(listed.id)]
        return deleted

    @classmethod
    def _of(cls, native: podbay.Sandbox, root_dir: str, timeout: float) -> Self:
        backend = cls.__new__(cls)
        backend._client = None
        backend._manage_client = False
        backend._begin(SingleSandbox(native, replaces=True), root_dir, timeout)
        # For programs that use it without a `with` block.
        weakref.finalize(backend, _close, native)
        return backend

    def _begin(self, source: Source, root_dir: str, timeout: float) -> None:
        self._use(source, timeout=timeout)
        self.root_dir = root_dir
        self.enable_capture_offload = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @property
    def id(self) -> str:
        """The name of the SandboxClaim, or `agent-sandbox` if there is none yet."""
        if self._client is not None:
            return str(getattr(self._client, "claim_name", None) or "agent-sandbox")
        return self._source.id

    def __enter__(self) -> Self:
        if self._manage_client:
            self._client.__enter__()
        with translated():
            self._source.sandbox().open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        if self._manage_client:
            self._client.__enter__()
        with translated():
            await (await self._source.asandbox()).aopen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def close(self) -> None:
        """Deletes the sandbox if this object created it. Closing again does nothing."""
        if self._client is None:
            with translated():
                self._source.sandbox().close()
        elif isinstance(self._source, Deferred):
            self._source.forget()
            if self._manage_client:
                self._client.__exit__(None, None, None)

    async def aclose(self) -> None:
        """The async version of `close`."""
        if self._client is None:
            with translated():
                await (await self._source.asandbox()).aclose()
        else:
            self.close()

    # Forms that langchain-agent-sandbox documents.

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> NumberedText:
        """Reads lines of a file. The result is a text with line numbers, or an error message."""
        return NumberedText(super().read(file_path, offset, limit), offset)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> NumberedText:
        """The async version of `read`."""
        return NumberedText(await super().aread(file_path, offset, limit), offset)

    def write(self, file_path: str, content: str) -> WriteResult:
        """Creates a file; fails if it exists."""
        try:
            self._source.sandbox().write(file_path, content, create_only=True)
        except Exception as failure:
            return _unwritten(file_path, self._noted(failure))
        return WriteResult(path=file_path)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """The async version of `write`."""
        try:
            await (await self._source.asandbox()).awrite(file_path, content, create_only=True)
        except Exception as failure:
            return _unwritten(file_path, self._noted(failure))
        return WriteResult(path=file_path)

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command. After `timeout` seconds it returns exit code 124 and the output so far."""
        return super().execute(command, timeout=timeout)

    def upload_files(self, files: list[tuple[str, bytes]] | Mapping[str, bytes]) -> list[FileUploadResponse]:
        """Writes files; returns one response per file, in order. Relative paths are below the root."""
        return _coded(super().upload_files(_files(files)), "upload_failed")

    async def aupload_files(self, files: list[tuple[str, bytes]] | Mapping[str, bytes]) -> list[FileUploadResponse]:
        """The async version of `upload_files`."""
        return _coded(await super().aupload_files(_files(files)), "upload_failed")

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files; returns one response per file, in order. Relative paths are below the root."""
        return _coded(super().download_files([_absolute(path) for path in paths]), "download_failed")

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """The async version of `download_files`."""
        return _coded(await super().adownload_files([_absolute(path) for path in paths]), "download_failed")

    def ls_info(self, path: str) -> list[FileInfo]:
        """Lists a directory; returns an empty list if it can't be listed."""
        return self.ls(path).entries or []

    async def als_info(self, path: str) -> list[FileInfo]:
        """The async version of `ls_info`."""
        return (await self.als(path)).entries or []

    def glob_info(self, pattern: str, path: str = "/") -> list[FileInfo]:
        """Finds files by name; returns an empty list if the search fails."""
        return self.glob(pattern, path).matches or []

    async def aglob_info(self, pattern: str, path: str = "/") -> list[FileInfo]:
        """The async version of `glob_info`."""
        return (await self.aglob(pattern, path)).matches or []

    def grep_raw(self, pattern: str, path: str | None = None, glob: str | None = None) -> list[GrepMatch] | str:
        """Finds lines that contain a text; returns an error message if the search fails."""
        return matches_or_error(self.grep(pattern, path or "/", glob))

    async def agrep_raw(self, pattern: str, path: str | None = None, glob: str | None = None) -> list[GrepMatch] | str:
        """The async version of `grep_raw`."""
        return matches_or_error(await self.agrep(pattern, path or "/", glob))

    def _noted(self, failure: Exception) -> Exception:
        # As the original does, which lets a file that exists pass without a word.
        if not isinstance(failure, podbay.AlreadyExists):
            logger.warning("an operation in the sandbox %s failed: %s", self.id, failure)
        return super()._noted(failure)

    def _reason(self, failure: Exception | None) -> str | None:
        # Transfers that fail in other ways than by a code are logged with their paths.
        return None if failure is None else failures.transfer(super()._noted(failure))


class WarmPoolBackend(AgentSandboxBackend):
    """A backend whose sandbox comes from a warm pool if it has one ready."""

    _warmpool_name: str | None = None

    @classmethod
    def from_warmpool(
        cls,
        template_name: str,
        namespace: str = _NAMESPACE,
        warmpool_name: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Like `from_template`, with the pool to claim from; by default one that uses the template."""
        backend = cls.from_template(template_name, namespace, warmpool_name=warmpool_name, **kwargs)
        backend._warmpool_name = warmpool_name
        return backend

    def get_adoption_info(self) -> dict[str, Any]:
        """Returns the pool that was asked for, and whether the sandbox really came from a pool (`from_warmpool`)."""
        return {
            "warmpool_name": self._warmpool_name,
            "from_warmpool": self._source.sandbox().launch == "warm",
        }


class Deferred:
    """The sandbox of a client, which may be entered only after the backend was created."""

    def __init__(self, attach: Callable[[], podbay.Sandbox]) -> None:
        self._attach = attach
        self._only: podbay.Sandbox | None = None

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self.sandbox().id

    def sandbox(self) -> podbay.Sandbox:
        """Returns the sandbox."""
        if self._only is None:
            self._only = self._attach()
        return self._only

    async def asandbox(self) -> podbay.Sandbox:
        """Returns the sandbox."""
        return self.sandbox()

    def failed(self, failure: Exception) -> None:
        """Lets the next call look for the pod that the controller put in the place of one that is gone."""
        if isinstance(failure, podbay.PodGone) and self._only is not None:
            self._only.disconnect()

    def forget(self) -> None:
        """Drops the connection. The sandbox stays."""
        if self._only is not None:
            self._only.disconnect()
        self._only = None


def confinement(root_dir: str, allow_absolute_paths: bool) -> dict[str, Any]:
    """Returns the rules for paths: below a root, or the sandbox's own paths."""
    if not root_dir.startswith("/"):
        raise ValueError(f"root_dir must be an absolute path, not {root_dir!r}")
    if allow_absolute_paths:
        return {"workdir": root_dir}
    return {"workdir": root_dir, "virtual_mode": True, "root_dir": root_dir}


def created(
    template_name: str | None,
    namespace: str,
    gateway: tuple[str | None, str],
    api_url: str | None,
    root_dir: str,
    *,
    server_port: int = _PORT,
    client: Any = None,
    warmpool_name: str | None = None,
    labels: Mapping[str, str] | None = None,
    shutdown_after_seconds: int | None = None,
    session_id: str | None = None,
    allow_absolute_paths: bool = False,
    default_timeout_seconds: float = _TIMEOUT,
    connection_mode: str | None = None,
    **settings: Any,
) -> tuple[dict[str, Any], str, float]:
    """Returns the arguments for a new `podbay.Sandbox`, its root, and how many seconds a command may take."""
    template_name = template_name or settings.pop("template", None) or os.environ.get("LANGCHAIN_SANDBOX_TEMPLATE")
    if not template_name and not warmpool_name:
        raise ValueError("template_name is required: pass it, or set LANGCHAIN_SANDBOX_TEMPLATE")
    if namespace == _NAMESPACE:
        namespace = os.environ.get("LANGCHAIN_NAMESPACE") or namespace
    if root_dir == _ROOT:
        root_dir = os.environ.get("LANGCHAIN_ROOT_DIR") or root_dir
    gateway_name, gateway_namespace = gateway
    if api_url is None and gateway_name is None:
        api_url = os.environ.get("LANGCHAIN_API_URL") or None
    if server_port == _PORT and client is None:
        server_port = _port_from_environment()
    every = {**(labels or {}), **({} if session_id is None else {_SESSION: session_id})}
    given = {
        "template_name": template_name,
        "warm_pool_name": warmpool_name,
        "labels": every or None,
        "ttl": shutdown_after_seconds,
    }
    found = {
        "mode": "agent-sandbox",
        "namespace": namespace,
        "label_prefix": "",
        **{name: value for name, value in given.items() if value is not None},
        **connection(
            connection_mode,
            gateway_name=gateway_name,
            gateway_namespace=gateway_namespace if gateway_name else None,
            api_url=api_url,
            server_port=server_port,
            connection_config=getattr(client, "connection_config", None),
            private_key_file=settings.get("private_key_file"),
        ),
        **sdk_settings(client),
        **confinement(root_dir, allow_absolute_paths),
        **settings,
    }
    return found, root_dir, default_timeout_seconds


def _port_from_environment() -> int:
    text = os.environ.get("LANGCHAIN_SERVER_PORT") or _PORT
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"LANGCHAIN_SERVER_PORT has to be a number, not {text!r}") from None


def _close(native: podbay.Sandbox) -> None:
    try:
        native.close()
    except podbay.PodbayError as error:
        logger.error("the sandbox %s couldn't be deleted, and will end by its TTL: %s", native.id, error)


def _unwritten(path: str, failure: Exception) -> WriteResult:
    if isinstance(failure, podbay.AlreadyExists):
        return WriteResult(error=f"Error: File '{path}' already exists. Use edit to change it.")
    return failures.write(path, failure)


def _coded(responses: list[Response], other: str) -> list[Response]:
    """Replaces errors without a code of their own by langchain-agent-sandbox's code for them, and logs the reason."""
    for response in responses:
        if response.error is not None and response.error not in _CODES:
            logger.error("%s: %s: %s", other, response.path, response.error)
            response.error = other
    return responses


def _files(files: list[tuple[str, bytes]] | Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    pairs = files if isinstance(files, list) else list(dict(files).items())
    return [(_absolute(path), content) for path, content in pairs]


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"
