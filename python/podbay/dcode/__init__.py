"""Sandboxes for Deep Agents Code: `dcode --sandbox podbay`, and `dcode --sandbox kubernetes`.

dcode finds these classes by the package's entry points. Settings come from Podbay's usual sources (`PODBAY_…` variables
and settings files; see docs/config.md), from the same variables prefixed with `DEEPAGENTS_CODE_`, and from a table in
dcode's configuration:

    [sandboxes.providers.kubernetes]
    class_path = "podbay.dcode:KubernetesProvider"
    params = { image = "python:3.12-slim", namespace = "agents" }

With the agent-sandbox controller, name a template or a pool instead, there or in `PODBAY_AGENT_SANDBOX_TEMPLATE_NAME`:

    params = { mode = "agent-sandbox", template_name = "python", namespace = "agents" }

Variables in the workspace's `.env` can only narrow settings, because a sandbox may have written that file (see
`dotenv`).
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from deepagents_code.integrations.sandbox_provider import (
    SandboxInstallHint,
    SandboxNotFoundError,
    SandboxProvider,
    SandboxProviderMetadata,
)

import podbay
from podbay.dcode.dotenv import Variables
from podbay.deepagents import PodbaySandbox
from podbay.leash import Leash

if TYPE_CHECKING:
    from deepagents.backends.protocol import SandboxBackendProtocol

_WORKDIR = "/workspace"
_leashes: dict[str, Leash] = {}


class PodbayProvider(SandboxProvider):
    """Sandboxes in the configured mode: by default on this machine."""

    name: ClassVar[str] = "podbay"

    @property
    def metadata(self) -> SandboxProviderMetadata:
        """The provider's description for dcode. Reading it opens nothing."""
        return SandboxProviderMetadata(
            name=self.name,
            working_dir=self._working_dir(),
            install=SandboxInstallHint(kind="package", name="podbay[deepagents]"),
            backend_module="podbay._native",
        )

    def get_or_create(self, *, sandbox_id: str | None = None, **params: Any) -> SandboxBackendProtocol:
        """Returns the sandbox with an id, or a new one. `params` are settings, and `timeout` for commands."""
        timeout = params.pop("timeout", 300)
        settings = self._settings(params)
        if sandbox_id is not None:
            try:
                found = podbay.Provider(**settings).reconnect(sandbox_id)
            except podbay.SandboxNotFound as missing:
                raise SandboxNotFoundError(str(missing)) from missing
            return PodbaySandbox(sandbox=found, timeout=timeout)
        backend = PodbaySandbox(timeout=timeout, **settings)
        # dcode kills its server without giving it time to delete anything; local sandboxes end by themselves.
        leash = Leash(settings, backend.id) if settings["mode"] != "local" else None
        try:
            backend.__enter__()
        except BaseException:
            if leash is not None:
                leash.let_go()
            raise
        if leash is not None:
            _leashes[backend.id] = leash
            # At the end of this process, the leash notices by itself.
            weakref.finalize(backend, _let_go, backend.id, leash).atexit = False
        return backend

    def delete(self, *, sandbox_id: str, **params: Any) -> None:
        """Deletes a sandbox. It isn't an error if it no longer exists."""
        podbay.Provider(**self._settings(params)).delete(sandbox_id)
        leash = _leashes.pop(sandbox_id, None)
        if leash is not None:
            leash.let_go()

    def _mode(self) -> str:
        return Variables.now().setting("mode") or "local"

    def _working_dir(self) -> str:
        # A mode's section has its name.
        key = f"{self._mode().replace('-', '_')}.workdir"
        known = any(setting.key == key for setting in podbay.SETTINGS)
        return (known and Variables.now().setting(key)) or _WORKDIR

    def _settings(self, params: dict[str, Any]) -> dict[str, Any]:
        params.pop("timeout", None)
        mode = params.pop("mode", None) or self._mode()
        settings = {key: value for key, value in Variables.now().settings().items() if key != "mode"}
        # A parameter replaces the variable of the same setting, whether it names the section or not.
        for key in [key for key in settings if key in params or key.rpartition(".")[2] in params]:
            del settings[key]
        return {"mode": mode, **settings, **params}


def _let_go(sandbox_id: str, leash: Leash) -> None:
    """Deletes a sandbox whose backend is gone, as a local one ends with its object."""
    # Unless it was deleted, or a later backend of that id has a leash of its own.
    if _leashes.get(sandbox_id) is leash:
        del _leashes[sandbox_id]
        # Whoever collects garbage mustn't have to wait for a cluster.
        threading.Thread(target=leash.let_go, daemon=True).start()


class KubernetesProvider(PodbayProvider):
    """Sandboxes in the cluster that kubectl would use, in mode raw unless `PODBAY_MODE` is another cluster mode."""

    name: ClassVar[str] = "kubernetes"

    def _mode(self) -> str:
        mode = super()._mode()
        return "raw" if mode == "local" else mode
