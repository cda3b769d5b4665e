"""The public names of a package for agent-sandbox with their parameters and defaults, to be stored and compared.

    python claims_signatures.py langchain_k8s > langchain_k8s-0.7.1.json

records those of a package that is installed.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from typing import Any

Names = dict[str, dict[str, str]]

SPECIAL = ["__init__", "__enter__", "__exit__"]


def described(package: str) -> Names:
    """Returns each public name with its parameters and their defaults. Names of bases in other packages don't count."""
    module = importlib.import_module(package)
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    found: Names = {}
    for name in sorted(names):
        value = getattr(module, name)
        if inspect.isclass(value):
            found[name] = {}
            for key in dir(value):
                if not key.startswith("_") or key in SPECIAL:
                    _member(found, package, f"{name}.{key}", inspect.getattr_static(value, key), getattr(value, key))
        elif callable(value):
            found[name] = parameters(value)
        else:
            found[name] = {}
    return found


def _member(found: Names, package: str, name: str, static: Any, value: Any) -> None:
    if isinstance(static, property):
        found[name] = {}
    elif callable(value) and getattr(value, "__module__", "").startswith(package.split(".")[0]):
        found[name] = parameters(value)


def parameters(function: Any) -> dict[str, str]:
    """Returns the parameters of a function and their defaults."""
    every = inspect.signature(function).parameters.values()
    return {
        str(parameter.name): "required" if parameter.default is parameter.empty else repr(parameter.default)
        for parameter in every
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


def missing(recorded: Names, ours: Names) -> list[str]:
    """Returns which recorded names and parameters aren't there, or have another default. There may be more of them."""
    gone = []
    for name, wanted in recorded.items():
        if name not in ours:
            gone.append(name)
            continue
        for parameter, default in wanted.items():
            # One that had to be passed may have a default, and the parameters of `with` need no names.
            have = ours[name].get(parameter)
            if name.endswith("__exit__") or have == default or (default == "required" and have is not None):
                continue
            gone.append(f"{name}({parameter}={default}), not {have}")
    return gone


if __name__ == "__main__":
    json.dump(described(sys.argv[1]), sys.stdout, indent=1)
    print()
