"""Finds out which of dcode's variables come from the workspace's `.env`, and restricts those.

dcode loads the nearest `.env` from the workspace upwards, and then the user's own `~/.deepagents/.env`. A sandbox or a
cloned repository may have created the first, so its variables can only do what a project's `podbay.toml` can: narrow
settings (docs/config.md). Podbay's libraries, and the programs that a kubeconfig names, also read variables that nobody
can list: proxies, certificates, search paths, cloud credentials. So every other name from that file is refused unless
it is known to be harmless. `resolve_env_var` doesn't say where a value came from, so this module works it out.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepagents_code import config as dcode
from dotenv import dotenv_values

import podbay
from podbay._native import settings_of_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX = "DEEPAGENTS_CODE_"

# These decide where settings, clusters and podbayd are found. Podbay reads them from the process's environment.
_LEADING = (
    "HOME",
    "KUBECONFIG",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "PODBAY_CONFIG",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
)

# What a project's `.env` may put into the process besides settings: dcode's own variables, and what models and tracing
# are reached with.
_HARMLESS = re.compile(r"DEEPAGENTS_CODE_\w+|LANG(SMITH|CHAIN)_\w+|[A-Z0-9_]+_API_KEY")


@dataclass(frozen=True)
class Variables:
    """The variables of a workspace, by their origin."""

    trusted: Mapping[str, str]
    """From the shell that started dcode, or from the user's own `.env`."""

    project: Mapping[str, str]
    """From the workspace's `.env`, or of unknown origin."""

    @classmethod
    def now(cls) -> Variables:
        """Returns the variables of the workspace that dcode is working on."""
        own, shell = _own_dotenv(), _shell()
        every = {**os.environ, **dcode.active_environment()}
        # A value that a trusted source has too is trusted, wherever it came from.
        trusted = {name: value for name, value in every.items() if value in (shell.get(name), own.get(name))}
        for name, value in shell.items():
            trusted.setdefault(name, value)
        return cls(trusted, {name: value for name, value in every.items() if trusted.get(name) != value})

    def setting(self, key: str) -> str | None:
        """Returns the trusted text of a setting."""
        return _texts(self.trusted).get(next(known.variable for known in podbay.SETTINGS if known.key == key))

    def settings(self) -> dict[str, Any]:
        """Returns all settings in these variables. Those of the project can only narrow; others raise `ConfigError`."""
        settings = {setting.variable for setting in podbay.SETTINGS}
        for name, value in sorted(self.project.items()):
            # A variable in dcode's snapshot of the workspace reaches neither Podbay nor what Podbay starts.
            if os.environ.get(name) == value and name not in settings and not _HARMLESS.fullmatch(name):
                raise podbay.ConfigError(
                    f"{name} comes from a .env file of the project, which a sandbox may have written, and could lead "
                    "Podbay to other files, programs or servers: remove it there, and export it before dcode starts "
                    "(or set it in ~/.deepagents/.env) if you want it"
                )
        leading = {name: self.trusted[name] for name in _LEADING if name in self.trusted}
        trusted = {**leading, **_texts(self.trusted)}
        return dict(
            settings_of_variables(list(trusted.items()), list(_texts(self.project).items()), "a project's .env")
        )


def _texts(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings by Podbay's names. A variable with dcode's prefix wins, even if it is empty."""
    found = {}
    for setting in podbay.SETTINGS:
        text = variables.get(_PREFIX + setting.variable, variables.get(setting.variable))
        if text:
            found[setting.variable] = text
    return found


def _shell() -> dict[str, str]:
    """Returns the environment without the variables that dcode loaded from files."""
    loaded = getattr(dcode, "_dotenv_loaded_values", None)
    # If this dcode doesn't say what it loaded, use the environment the process was started with, from Linux's /proc.
    environ = dict(os.environ) if loaded is not None else _at_start()
    named = {**_nearest_dotenv(), **(loaded or {})}
    return {name: value for name, value in environ.items() if named.get(name) != value}


def _at_start() -> dict[str, str]:
    try:
        pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    split = (os.fsdecode(pair).partition("=") for pair in pairs)
    return {name: value for name, _, value in split if name}


def _own_dotenv() -> dict[str, str]:
    path = getattr(dcode, "_GLOBAL_DOTENV_PATH", None)
    return {} if path is None or _is_nearest(Path(path)) else _parsed(Path(path))


def _is_nearest(own: Path) -> bool:
    """Whether the user's own file is also the workspace's."""
    nearest = _nearest()
    try:
        return nearest is not None and nearest.samefile(own)
    except OSError:
        return False


def _nearest() -> Path | None:
    here = Path.cwd()
    candidates = (directory / ".env" for directory in (here, *here.parents))
    return next((path for path in candidates if path.is_file()), None)


def _nearest_dotenv() -> dict[str, str]:
    path = _nearest()
    return {} if path is None else _parsed(path)


def _parsed(path: Path) -> dict[str, str]:
    """Reads a file's variables without interpolation, by which a project's value could pass for the user's."""
    try:
        values = dotenv_values(path, interpolate=False, encoding="utf-8")
    except (OSError, ValueError):
        return {}
    return {name: value for name, value in values.items() if value is not None}
