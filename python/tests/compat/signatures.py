"""The public names of a package with their parameters and defaults, in a form that can be stored and compared.

    python signatures.py langchain_kubernetes > langchain_kubernetes-0.4.0.json

records those of a package that is installed.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import sys
from typing import Any

MODULES = [
    "",
    "config",
    "manager",
    "provider",
    "sandbox",
    "backends.protocol",
    "backends.raw",
    "backends.agent_sandbox",
]
CONSTANTS = ["DEFAULT_SANDBOX_STATE_KEY"]
SPECIAL = ["__init__", "__enter__", "__exit__", "__aenter__", "__aexit__"]


def described(package: str) -> dict[str, str]:
    """Yields each qualified name and its value."""
    found: dict[str, str] = {}
    for path in MODULES:
        module = importlib.import_module(f"{package}.{path}".rstrip("."))
        for key, value in vars(module).items():
            name = f"{path}.{key}".lstrip(".")
            if key in CONSTANTS:
                found[name] = repr(value)
            elif inspect.isclass(value) and not key.startswith("_"):
                own = value.__module__ == module.__name__
                if own or (not path and value.__module__.startswith(package + ".")):
                    found |= _class(name, value)
    return dict(sorted(found.items()))


def _class(name: str, value: type) -> dict[str, str]:
    found = {name: "class"}
    if dataclasses.is_dataclass(value):
        found |= {f"{name}.{field.name}": f"field = {_default(field)}" for field in dataclasses.fields(value)}
    for key, member in vars(value).items():
        if key.startswith("_") and key not in SPECIAL:
            continue
        if isinstance(member, property):
            found[f"{name}.{key}"] = "property"
        elif callable(getattr(value, key)) and not (key == "__init__" and dataclasses.is_dataclass(value)):
            found[f"{name}.{key}"] = _signature(getattr(value, key))
    return found


def _default(field: Any) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return repr(field.default_factory())
    return "required" if field.default is dataclasses.MISSING else repr(field.default)


def _signature(function: Any) -> str:
    """Returns parameters and defaults, without types."""
    bare = inspect.signature(function)
    bare = bare.replace(
        parameters=[parameter.replace(annotation=parameter.empty) for parameter in bare.parameters.values()],
        return_annotation=bare.empty,
    )
    return ("async " if inspect.iscoroutinefunction(function) else "") + str(bare)


if __name__ == "__main__":
    json.dump(described(sys.argv[1]), sys.stdout, indent=1)
    print()
