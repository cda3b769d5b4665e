"""Prints the Python API reference, generated from the installed package's docstrings and its stub.

Run it by `cargo xtask reference python`, which installs the package first and writes docs/reference/python.md.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import podbay

MODULES = [
    "podbay",
    "podbay.deepagents",
    "podbay.langgraph",
    "podbay.tool",
    "podbay.compat.langchain_kubernetes",
    "podbay.compat.langchain_k8s",
    "podbay.compat.langchain_kubernetes_agent_sandbox",
    "podbay.compat.langchain_agent_sandbox",
    "podbay.compat.k8s_agent_sandbox",
    "podbay.compat.agentic_sandbox",
]
HEAD = """# Python reference

Generated from the package's docstrings by `cargo xtask reference python`; `cargo xtask test` checks that it is up to
date. Start with the [guide](../python.md). Methods marked *(and async)* also have an async version, prefixed with `a`:
`run` and `arun`.
"""


def reference() -> str:
    """Returns the whole page."""
    return "\n".join([HEAD, *(part for name in MODULES for part in module(name))]).rstrip() + "\n"


def module(name: str) -> list[str]:
    """Describes everything that a module exports."""
    loaded = importlib.import_module(name)
    parts = [f"## `{name}`", "", docstring(loaded), ""]
    for member in sorted(loaded.__all__, key=lambda member: (rank(getattr(loaded, member)), member)):
        value = getattr(loaded, member)
        if inspect.isclass(value) and value.__name__ != member:
            parts += [f"### `{member}`", "", f"Another name of `{value.__name__}`.", ""]
        elif inspect.isclass(value):
            parts += described_class(value)
        elif callable(value):
            parts += [f"### `{member}{signature(value)}`", "", docstring(value), ""]
    return parts


def rank(value: object) -> int:
    """Sorts classes with async methods first, then results, exceptions and functions."""
    if not inspect.isclass(value):
        return 3
    if issubclass(value, BaseException):
        return 2
    return 1 if not any(name.startswith("a") and name[1:] in vars(value) for name in vars(value)) else 0


def described_class(kind: type) -> list[str]:
    """Describes a class and its members."""
    bases = [base.__name__ for base in kind.__bases__ if base is not object]
    parts = [f"### class `{kind.__name__}{'(' + ', '.join(bases) + ')' if bases else ''}`", "", docstring(kind), ""]
    if issubclass(kind, BaseException):
        return parts
    if dataclasses.is_dataclass(kind):
        fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(kind))
        return [*parts, f"Fields: {fields}.", ""]
    own = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    rows = []
    for name in sorted(own):
        if name.startswith("a") and name[1:] in own:
            continue
        value = getattr(kind, name)
        pair = " *(and async)*" if f"a{name}" in own else ""
        if callable(value):
            rows.append(row(f"`{name}{signature(value, kind)}`{pair}", docstring(value)))
        elif inspect.isdatadescriptor(value):
            rows.append(row(f"`{name}`", docstring(value)))
        else:
            rows.append(row(f"`{name} = {value!r}`", "Class attribute."))
    if rows:
        parts += ["| member | |", "|---|---|", *rows, ""]
    return parts


def row(member: str, text: str) -> str:
    """Returns a row of a table: a member and the first paragraph of its docstring, which is required."""
    if not text:
        raise SystemExit(f"{member} has no docstring: write one")
    summary = text.split("\n\n")[0].replace("\n", " ")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (member, summary)) + " |"


def docstring(value: object) -> str:
    """Returns an object's own docstring, not one inherited from another package, with parameters as a list."""
    lines = inspect.cleandoc(getattr(value, "__doc__", None) or "").split("\n")
    return "\n".join(re.sub(r"^(\w+(?:, \w+)*): ", r"- `\1`: ", line) for line in lines)


def signature(value: Any, owner: type | None = None) -> str:
    """Returns a signature: for native code from the stub, which has the types, otherwise from the object."""
    stub = STUBS.get((owner.__name__ if owner else None, value.__name__))
    if stub is not None:
        return stub
    shown = inspect.signature(value)
    kept = [parameter for name, parameter in shown.parameters.items() if name != "self"]
    # Annotations that aren't evaluated are strings; remove their quotes.
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(shown.replace(parameters=kept)))


def stubs() -> dict[tuple[str | None, str], str]:
    """Returns the signatures in the stub of the native module, by class and name."""
    tree = ast.parse(Path(podbay.__file__).with_name("_native.pyi").read_text())
    found: dict[tuple[str | None, str], str] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[None, node.name] = text_of(node)
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    found[node.name, method.name] = text_of(method)
    return found


def text_of(node: ast.FunctionDef) -> str:
    """Formats a function's signature without `self`."""
    arguments = node.args
    arguments.args = [argument for argument in arguments.args if argument.arg not in {"self", "cls"}]
    returns = ast.unparse(node.returns) if node.returns else "None"
    return f"({ast.unparse(arguments)}) -> {returns}"


STUBS = stubs()

if __name__ == "__main__":
    print(reference(), end="")
