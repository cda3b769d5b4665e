"""Creates, finds, lists and deletes sandboxes."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING, Any, Self

import podbay
from podbay.compat._claims import claim_id, connection
from podbay.compat.k8s_agent_sandbox.exceptions import translated
from podbay.compat.k8s_agent_sandbox.models import SandboxLocalTunnelConnectionConfig, SandboxTracerConfig
from podbay.compat.k8s_agent_sandbox.sandbox import Sandbox
from podbay.compat.k8s_agent_sandbox.tracing import Tracing

if TYPE_CHECKING:
    import builtins
    from types import TracebackType


class SandboxClient:
    """Creates sandboxes by claims. The end of a `with` block deletes those that it created without a name.

    With `tracer_config`, every operation is a span for the program's own OpenTelemetry. `settings` are Podbay's, such
    as `kubeconfig` and `connection`.
    """

    def __init__(
        self,
        connection_config: Any = None,
        tracer_config: Any = None,
        cleanup: bool = False,
        api_client: Any = None,
        **settings: Any,
    ) -> None:
        self.connection_config = connection_config or SandboxLocalTunnelConnectionConfig()
        self.tracer_config = tracer_config or SandboxTracerConfig()
        self._tracing = Tracing(self.tracer_config)
        self.tracer = self._tracing.tracer
        if api_client is not None:
            raise podbay.ConfigError("api_client isn't supported: pass kubeconfig and context, or set KUBECONFIG")
        mode = settings.pop("connection_mode", None)
        key = settings.get("private_key_file")
        reached = connection(mode, connection_config=self.connection_config, private_key_file=key)
        self.podbay_settings = {**reached, **settings}
        """The settings with which Podbay reaches its cluster."""
        self._active: dict[tuple[str, str], Sandbox] = {}
        self._unnamed: set[tuple[str, str]] = set()
        if cleanup:
            atexit.register(self._delete_unnamed)

    def create_sandbox(
        self,
        warmpool: str | None = None,
        namespace: str = "default",
        sandbox_ready_timeout: int = 180,
        labels: dict[str, str] | None = None,
        *,
        template: str | None = None,
        claim_name: str | None = None,
        adopt_existing: bool = False,
        shutdown_after_seconds: int | None = None,
        volume_claim_templates: builtins.list[dict[str, Any]] | None = None,
        pod_labels: dict[str, str] | None = None,
        pod_annotations: dict[str, str] | None = None,
        env: dict[str, str] | None = None,
    ) -> Sandbox:
        """Creates a sandbox from a warm pool, or from a pool that uses a template, and waits until it is ready.

        `env` and `volume_claim_templates` make it start cold.
        """
        if not warmpool and not template:
            raise ValueError("Warmpool name cannot be empty.")
        if adopt_existing and claim_name is None:
            raise ValueError("adopt_existing requires an explicit claim_name.")
        given: dict[str, Any] = {
            "warm_pool_name": warmpool,
            "template_name": template,
            "startup_timeout": sandbox_ready_timeout,
            "claim_env": env,
            "volume_claim_templates": volume_claim_templates,
            "pod_labels": pod_labels,
            "pod_annotations": pod_annotations,
        }
        wanted = {"labels": labels, "ttl": shutdown_after_seconds}
        native = podbay.Sandbox(
            id=None if claim_name is None else claim_id(claim_name),
            **self._settings(namespace),
            **{name: value for name, value in (given | wanted).items() if value is not None},
        )
        with self._tracing.span("create_claim", claim=native.id), translated():
            native.open()
            if not native.created and not adopt_existing:
                native.close()
                raise podbay.NameTaken(f"the sandbox {claim_name!r} already exists: pass adopt_existing=True to use it")
        if claim_name is None:
            self._unnamed.add((namespace, native.id))
        return self._keep(native, namespace)

    def get_sandbox(self, claim_name: str, namespace: str = "default") -> Sandbox:
        """Returns the sandbox of a claim; raises `SandboxNotFoundError` if it doesn't exist."""
        known = self._active.get((namespace, claim_name))
        if known is not None and known.is_active:
            return known
        native = podbay.Sandbox(id=claim_id(claim_name), attach=True, foreign_claims=True, **self._settings(namespace))
        with translated():
            native.open()
        return self._keep(native, namespace)

    def list_active_sandboxes(self) -> builtins.list[tuple[str, str]]:
        """Lists the sandboxes that this client is connected to, as pairs of namespace and claim."""
        return [key for key, sandbox in self._active.items() if sandbox.is_active]

    def list_all_sandboxes(self, namespace: str = "default") -> builtins.list[str]:
        """Lists the claims of Podbay in a namespace."""
        provider, found, cursor = self._provider(namespace), [], None
        with translated():
            while True:
                page = provider.list(cursor=cursor)
                found += [listed.id for listed in page]
                cursor = page.cursor
                if cursor is None:
                    return found

    def delete_sandbox(self, claim_name: str, namespace: str = "default") -> None:
        """Deletes the sandbox of a claim. It isn't an error if it no longer exists."""
        claim = claim_id(claim_name)
        known = self._active.get((namespace, claim))
        with self._tracing.span("delete_claim", claim=claim), translated():
            if known is not None:
                known.terminate()
            else:
                self._provider(namespace).delete(claim)
        # Only now: what couldn't be deleted is tried again with the others.
        self._active.pop((namespace, claim), None)
        self._unnamed.discard((namespace, claim))

    def delete_all(self) -> None:
        """Deletes the sandboxes that this client is connected to."""
        for namespace, claim_name in list(self._active):
            self.delete_sandbox(claim_name, namespace)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._delete_unnamed()

    def _delete_unnamed(self) -> None:
        for namespace, claim_name in list(self._unnamed):
            self.delete_sandbox(claim_name, namespace)

    def _settings(self, namespace: str) -> dict[str, Any]:
        # Labels have no prefix, and sandboxes live until they are deleted, as with the SDK.
        base = {"mode": "agent-sandbox", "namespace": namespace, "label_prefix": "", "idle_ttl": "none"}
        return {**base, **self.podbay_settings}

    def _provider(self, namespace: str) -> podbay.Provider:
        return podbay.Provider(**self._settings(namespace))

    def _keep(self, native: podbay.Sandbox, namespace: str) -> Sandbox:
        sandbox = Sandbox(
            native, namespace, self.connection_config, self.podbay_settings, self._tracing, on_delete=self._forget
        )
        self._active[namespace, native.id] = sandbox
        return sandbox

    def _forget(self, sandbox: Sandbox) -> None:
        key = sandbox.namespace, sandbox.sandbox_id
        # Another handle may have taken its place.
        if self._active.get(key) is sandbox:
            del self._active[key]
        self._unnamed.discard(key)
