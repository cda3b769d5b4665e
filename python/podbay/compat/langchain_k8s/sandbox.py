"""The sandbox as a Deep Agents backend."""

from __future__ import annotations

import posixpath
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Self

import podbay
from podbay.compat._claims import attachment, claim_id, connection
from podbay.compat._operation_log import LoggedSandbox, WholeCommands
from podbay.compat.k8s_agent_sandbox.exceptions import translated
from podbay.compat.langchain_k8s.prefixes import allowed
from podbay.compat.langchain_k8s.virtual_paths import VirtualPaths
from podbay.deepagents.conversations import SingleSandbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from deepagents.backends.protocol import DeleteResult, EditResult, WriteResult

_log = WholeCommands("langchain_k8s.sandbox")
logger = _log.logger

_ROOT = "/tmp"
_change: ContextVar[tuple[str, str] | None] = ContextVar("_change", default=None)


@contextmanager
def _changing(operation: str, path: str) -> Iterator[None]:
    """Says what is being changed, for messages about a failure."""
    token = _change.set((operation, path))
    try:
        yield
    finally:
        _change.reset(token)


@dataclass
class Wanted:
    """A claim that is found or created, and that belongs to the caller."""

    claim_name: str
    namespace: str
    settings: dict[str, Any] = field(default_factory=dict)


class KubernetesSandbox(VirtualPaths, LoggedSandbox):
    """A sandbox of the agent-sandbox controller.

    Pass `sandbox`, a handle of k8s-agent-sandbox, to use a sandbox that you create and delete yourself. Pass
    `template_name` or `warmpool_name` to have one created on first use, and deleted by `stop()` or at the end of a
    `with` block. Pass `claim_name` to use one that exists.

    The parameters are those of langchain-k8s 0.4 to 0.7. `api_url` and `gateway_name` go through agent-sandbox's
    router, which needs a private key (docs/router.md); without them, the connection goes through the Kubernetes API,
    unless Podbay's setting `cluster.connection` says otherwise. `connection_mode` wins over all of these: `exec`,
    `tunnel`, `gateway`, `direct` or `in-cluster`. `server_port` is the port of the stock runtime (docs/runtime.md);
    a handle has its own.
    """

    _operation_log = _log

    def __init__(
        self,
        *,
        sandbox: Any = None,
        template_name: str | None = None,
        warmpool_name: str | None = None,
        warmpool: str | None = None,
        namespace: str = "default",
        gateway_name: str | None = None,
        gateway_namespace: str = "default",
        api_url: str | None = None,
        server_port: int = 8888,
        reuse_sandbox: bool = True,
        max_output_size: int = 1_048_576,
        command_timeout: int = 300,
        enable_capture_offload: bool = False,
        allow_prefixes: list[str] | None = None,
        root_dir: str | None = None,
        virtual_mode: bool = False,
        skip_cleanup: bool = False,
        claim_name: str | bytes | None = None,
        labels: dict[str, str] | None = None,
        connection_config: Any = None,
        shutdown_after_seconds: int | None = None,
        pod_labels: dict[str, str] | None = None,
        pod_annotations: dict[str, str] | None = None,
        volume_claim_templates: list[dict[str, Any]] | None = None,
        env: dict[str, str] | None = None,
        router_namespace: str = "agent-sandbox-system",
        connection_mode: str | None = None,
    ) -> None:
        pool = warmpool_name or warmpool
        if sandbox is not None and claim_name is not None:
            raise ValueError("Cannot specify both 'sandbox' and 'claim_name'")
        if sandbox is None and claim_name is None and not template_name and not pool:
            raise ValueError("Either 'sandbox', or 'template_name' or 'warmpool_name', must be provided")
        if connection_config is not None and (api_url is not None or gateway_name is not None):
            raise ValueError("Cannot specify 'connection_config' together with 'api_url' or 'gateway_name'")
        self._handle = sandbox
        self._claim_name = None if claim_name is None else claim_id(claim_name)
        self._reuse_sandbox = reuse_sandbox
        self._skip_cleanup = skip_cleanup
        self._root = (root_dir or _ROOT) if virtual_mode else None
        self._prefixes = allow_prefixes
        rules = {
            "virtual_mode": virtual_mode or None,
            "root_dir": self._root,
            "allow_prefixes": allowed(allow_prefixes, self._root, offloads=enable_capture_offload),
        }
        if isinstance(sandbox, Wanted):
            base: dict[str, Any] = {"id": claim_id(sandbox.claim_name), **sandbox.settings, "skip_cleanup": True}
        elif sandbox is not None:
            base = attachment(sandbox, connection_mode)
        else:
            reached = connection(
                connection_mode,
                gateway_name=gateway_name,
                gateway_namespace=None if connection_config else gateway_namespace,
                api_url=api_url,
                router_namespace=None if connection_config else router_namespace,
                server_port=server_port,
                connection_config=connection_config,
            )
            base = creation(
                namespace=namespace,
                template_name=template_name,
                pool=pool,
                labels=labels,
                shutdown_after_seconds=shutdown_after_seconds,
                pod_labels=pod_labels,
                pod_annotations=pod_annotations,
                volume_claim_templates=volume_claim_templates,
                env=env,
            )
            base |= reached
            if self._claim_name is not None:
                base |= {"id": self._claim_name, "attach": True, "foreign_claims": True}
        self._settings = base | {name: value for name, value in rules.items() if value is not None}
        self._use(self._new_source(), timeout=command_timeout, output_limit=max_output_size)
        self.enable_capture_offload = enable_capture_offload

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @property
    def claim_name(self) -> str | None:
        """The name of the SandboxClaim; None before the sandbox was created. Store it to reconnect later."""
        if self._handle is not None:
            return str(self._handle.claim_name)
        if self._claim_name is not None or self._only.created is not None:
            return self._only.id
        return None

    def start(self) -> None:
        """Creates the sandbox, or finds the one of `claim_name`, now. Starting again does nothing."""
        with translated():
            self._source.sandbox().open()

    def stop(self) -> None:
        """Deletes the sandbox, unless `skip_cleanup` is set or it was passed as `sandbox`. It can be started again."""
        if self._keeps():
            self._let_go()
            return
        used = self._only.created is not None
        with translated():
            # One that this object created is deleted even if its pod is gone.
            self._only.close() if self._claim_name is None else self._only.destroy()
        if used:
            logger.info("Sandbox stopped: %s", self.id)
        # A stopped backend can be started again.
        self._renew()

    def close(self) -> None:
        """The same as `stop`."""
        self.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        with translated():
            await (await self._source.asandbox()).aopen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """The async version of `stop`."""
        if self._keeps():
            self._let_go()
            return
        used = self._only.created is not None
        with translated():
            await (self._only.aclose() if self._claim_name is None else self._only.adestroy())
        if used:
            logger.info("Sandbox stopped: %s", self.id)
        self._renew()

    def write(self, file_path: str, content: str) -> WriteResult:
        """Creates or replaces a file."""
        with _changing("write", file_path):
            return super().write(file_path, content)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """The async version of `write`."""
        with _changing("write", file_path):
            return await super().awrite(file_path, content)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replaces text in a file."""
        with _changing("edit", file_path):
            return super().edit(file_path, old_string, new_string, replace_all)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """The async version of `edit`."""
        with _changing("edit", file_path):
            return await super().aedit(file_path, old_string, new_string, replace_all)

    def delete(self, file_path: str) -> DeleteResult:
        """Deletes a file, or a directory with its contents."""
        with _changing("delete", file_path):
            return super().delete(file_path)

    async def adelete(self, file_path: str) -> DeleteResult:
        """The async version of `delete`."""
        with _changing("delete", file_path):
            return await super().adelete(file_path)

    @property
    def _only(self) -> podbay.Sandbox:
        assert isinstance(self._source, SingleSandbox)
        return self._source.only

    def _keeps(self) -> bool:
        """Whether stopping leaves the sandbox: it isn't ours to delete, or a named one that was never used."""
        unused = self._claim_name is not None and self._only.created is None and not self._lost
        return self._handle is not None or self._skip_cleanup or unused

    def _let_go(self) -> None:
        if self._only.created is not None:
            logger.info("Sandbox disconnected, its SandboxClaim stays: %s", self.id)
        self._only.disconnect()
        if self._handle is None and self._claim_name is None and not self._reuse_sandbox:
            self._renew()

    def _new_source(self) -> SingleSandbox:
        self._lost = False
        # One that was passed or named is found again if its pod was replaced, but never created.
        replaces = self._reuse_sandbox or self._handle is not None
        return AnnouncedSandbox(podbay.Sandbox(**self._settings), replaces=replaces)

    def _renew(self) -> None:
        self._source = self._new_source()

    def _noted(self, failure: Exception) -> Exception:
        self._lost = self._lost or isinstance(failure, podbay.PodGone)
        change = _change.get()
        if change is None:
            return super()._noted(failure)
        operation, path = change
        resolved = path if self._root is None else posixpath.normpath(f"{self._root}/{path.lstrip('/')}")
        if isinstance(failure, podbay.PolicyDenied) and failure.code == "policy_denied" and self._prefixes is not None:
            # langchain-k8s's words, for programs and prompts that know them.
            words = f"Path {resolved!r} is not under any allowed prefix: {self._prefixes}"
            failure = podbay.PolicyDenied(words, failure.code, failure.path)
            logger.debug("%s: denied path=%r reason=%s", operation, path, words)
        if isinstance(failure, podbay.PermissionDenied):
            logger.warning(
                "%s: container permission denied for path=%r (resolved=%r). The sandbox policy (allow_prefixes) "
                "permits this path, but the container's OS user cannot write to it.",
                operation,
                path,
                resolved,
            )
        return super()._noted(failure)


class AnnouncedSandbox(SingleSandbox):
    """One sandbox for all calls, which logs that it was created or found."""

    def sandbox(self) -> podbay.Sandbox:
        """Returns the sandbox."""
        if self.only.created is None:
            self.only.open()
            self._announce()
        return self.only

    async def asandbox(self) -> podbay.Sandbox:
        """Returns the sandbox."""
        if self.only.created is None:
            await self.only.aopen()
            self._announce()
        return self.only

    def _announce(self) -> None:
        logger.info("Sandbox %s: %s", "started" if self.only.created else "reconnected", self.id)


class SandboxdBackend(KubernetesSandbox):
    """The backend for pods with sandboxd, which Podbay doesn't need: `KubernetesSandbox` works with any image."""

    def __init__(
        self,
        *,
        sandboxd_root: str = "/workspace",  # noqa: ARG002
        grep_max_file_bytes: int = 1_048_576,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> NoReturn:
        raise podbay.ConfigError(
            "SandboxdBackend isn't supported: use KubernetesSandbox, which works in pods with sandboxd too and needs "
            "nothing in the image; pass virtual_mode=True and root_dir to keep file operations below a directory"
        )


def creation(
    *,
    namespace: str,
    template_name: str | None,
    pool: str | None,
    labels: dict[str, str] | None,
    shutdown_after_seconds: int | None,
    pod_labels: dict[str, str] | None,
    pod_annotations: dict[str, str] | None,
    volume_claim_templates: list[dict[str, Any]] | None,
    env: dict[str, str] | None,
) -> dict[str, Any]:
    """Returns the arguments for a new `podbay.Sandbox`."""
    given = {
        "template_name": template_name,
        "warm_pool_name": pool,
        "labels": labels,
        "ttl": shutdown_after_seconds,
        "pod_labels": pod_labels,
        "pod_annotations": pod_annotations,
        "volume_claim_templates": volume_claim_templates,
        "claim_env": env,
    }
    # Labels have no prefix. Sandboxes live until they are deleted: whoever created one without a limit relies on that.
    base = {"mode": "agent-sandbox", "namespace": namespace, "label_prefix": "", "idle_ttl": "none"}
    return base | {name: value for name, value in given.items() if value is not None}
