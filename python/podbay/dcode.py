"""Sandboxes for Deep Agents Code: `dcode --sandbox podbay`, and `dcode --sandbox kubernetes`.

dcode finds these classes by the package's entry points. Settings come from where Podbay's always come from (`PODBAY_…`,
`podbay.toml`; docs/config.md lists them), from the same variables with `DEEPAGENTS_CODE_` before their name or in the
workspace's `.env`, and from a table of dcode's own configuration:

    [sandboxes.providers.kubernetes]
    class_path = "podbay.dcode:KubernetesProvider"
    params = { image = "python:3.12-slim", namespace = "agents" }
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from deepagents_code.integrations.sandbox_provider import (
    SandboxInstallHint,
    SandboxNotFoundError,
    SandboxProvider,
    SandboxProviderMetadata,
)
from deepagents_code.model_config import resolve_env_var

import podbay
from podbay.deepagents import PodbaySandbox
from podbay.leash import Leash

if TYPE_CHECKING:
    from deepagents.backends.protocol import SandboxBackendProtocol

_WORKDIR = "/workspace"
_leashes: dict[str, Leash] = {}


class PodbayProvider(SandboxProvider):
    """Sandboxes of the mode that is set: on this machine unless `PODBAY_MODE` says otherwise."""

    name: ClassVar[str] = "podbay"

    @property
    def metadata(self) -> SandboxProviderMetadata:
        """What dcode tells of it. Nothing is opened for this."""
        return SandboxProviderMetadata(
            name=self.name,
            working_dir=_set("raw.workdir") or _WORKDIR if self._mode() != "local" else _WORKDIR,
            install=SandboxInstallHint(kind="package", name="podbay[deepagents]"),
            backend_module="podbay._native",
        )

    def get_or_create(self, *, sandbox_id: str | None = None, **params: Any) -> SandboxBackendProtocol:
        """The sandbox of an id, or a new one. `params` are settings, and `timeout` for commands."""
        timeout = params.pop("timeout", 300)
        settings = self._settings(params)
        if sandbox_id is not None:
            try:
                found = podbay.Provider(**settings).reconnect(sandbox_id)
            except podbay.SandboxNotFound as missing:
                raise SandboxNotFoundError(str(missing)) from missing
            return PodbaySandbox(sandbox=found, timeout=timeout)
        backend = PodbaySandbox(timeout=timeout, **settings)
        # dcode ends its server by a signal that leaves it no time to delete anything (local sandboxes see to that).
        leash = Leash(settings, backend.id) if settings["mode"] != "local" else None
        try:
            backend.__enter__()
        except BaseException:
            if leash is not None:
                leash.let_go()
            raise
        if leash is not None:
            _leashes[backend.id] = leash
        return backend

    def delete(self, *, sandbox_id: str, **params: Any) -> None:
        """Deletes a sandbox; one that is gone already is as good as deleted."""
        podbay.Provider(**self._settings(params)).delete(sandbox_id)
        leash = _leashes.pop(sandbox_id, None)
        if leash is not None:
            leash.let_go()

    def _mode(self) -> str:
        return _set("mode") or "local"

    def _settings(self, params: dict[str, Any]) -> dict[str, Any]:
        params.pop("timeout", None)
        mode = params.pop("mode", None) or self._mode()
        settings = {key: value for key, value in _environment().items() if key != "mode"}
        # What the configuration says of a setting replaces the variable, by whichever of its two names.
        for key in [key for key in settings if key in params or key.removeprefix(f"{mode}.") in params]:
            del settings[key]
        return {"mode": mode, **settings, **params}


class KubernetesProvider(PodbayProvider):
    """Sandboxes in the cluster that kubectl would use; a mode of `PODBAY_MODE` that is of a cluster is kept."""

    name: ClassVar[str] = "kubernetes"

    def _mode(self) -> str:
        mode = super()._mode()
        return "raw" if mode == "local" else mode


def _environment() -> dict[str, Any]:
    """The settings in the workspace's environment, which needn't be this process's."""
    found = {}
    for setting in podbay.SETTINGS:
        text = resolve_env_var(setting.variable)
        if text is not None:
            found[setting.key] = _value(setting, text)
    return found


def _set(key: str) -> str | None:
    variable = next((setting.variable for setting in podbay.SETTINGS if setting.key == key), None)
    return None if variable is None else resolve_env_var(variable)


def _value(setting: podbay.Setting, text: str) -> Any:
    """What a variable's text means: as in docs/config.md."""
    try:
        match setting.kind:
            case "list":
                return [item.strip() for item in text.split(",") if item.strip()]
            case "map":
                return {name.strip(): value for name, _, value in (item.partition("=") for item in text.split(","))}
            case "tree":
                return json.loads(text)
            case "flag":
                return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
            case "count":
                return int(text)
            case "real":
                return float(text)
            case _:
                return text
    except (ValueError, KeyError):
        raise podbay.ConfigError(f"{setting.variable}={text!r} isn't a value for {setting.key}") from None
