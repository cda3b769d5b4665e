"""Writes the API reference from docstrings and signatures: `python tests/apidoc.py > ../docs/reference/python.md`."""

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
]
HEAD = """# Python reference

Made from the package's own docstrings by `python/tests/apidoc.py`; a test keeps it in step. Start with the
[guide](../python.md). A method `run` that has an async twin `arun` is listed once.
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(part for name in MODULES for part in module(name))]).rstrip() + "\n"


def module(name: str) -> list[str]:
    loaded = importlib.import_module(name)
    parts = [f"## `{name}`", "", docstring(loaded), ""]
    for member in sorted(loaded.__all__, key=lambda member: (rank(getattr(loaded, member)), member)):
        value = getattr(loaded, member)
        if inspect.isclass(value):
            parts += described_class(value)
        elif callable(value):
            parts += [f"### `{member}{signature(value)}`", "", docstring(value), ""]
    return parts


def rank(value: object) -> int:
    """What is used comes first, then what it answers, then what can go wrong."""
    if not inspect.isclass(value):
        return 3
    if issubclass(value, BaseException):
        return 2
    return 1 if not any(name.startswith("a") and name[1:] in vars(value) for name in vars(value)) else 0


def described_class(kind: type) -> list[str]:
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
        twin = " *(and async)*" if f"a{name}" in own else ""
        if callable(value):
            rows.append(row(f"`{name}{signature(value, kind)}`{twin}", docstring(value)))
        elif inspect.isdatadescriptor(value):
            rows.append(row(f"`{name}`", docstring(value)))
        else:
            rows.append(row(f"`{name} = {value!r}`", "A setting of the class."))
    if rows:
        parts += ["| member | |", "|---|---|", *rows, ""]
    return parts


def row(member: str, text: str) -> str:
    summary = text.split("\n\n")[0].replace("\n", " ")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (member, summary)) + " |"


def docstring(value: object) -> str:
    """What it says itself, and nothing that is inherited from another package; parameters as a list."""
    lines = inspect.cleandoc(getattr(value, "__doc__", None) or "").split("\n")
    return "\n".join(re.sub(r"^(\w+(?:, \w+)*): ", r"- `\1`: ", line) for line in lines)


def signature(value: Any, owner: type | None = None) -> str:
    """From the stub for what is native, where the types stand; else as Python knows it."""
    stub = STUBS.get((owner.__name__ if owner else None, value.__name__))
    if stub is not None:
        return stub
    shown = inspect.signature(value)
    kept = [parameter for name, parameter in shown.parameters.items() if name != "self"]
    # Annotations that aren't evaluated are texts, and shown as such.
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(shown.replace(parameters=kept)))


def stubs() -> dict[tuple[str | None, str], str]:
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
    arguments = node.args
    arguments.args = [argument for argument in arguments.args if argument.arg not in {"self", "cls"}]
    answer = ast.unparse(node.returns) if node.returns else "None"
    return f"({ast.unparse(arguments)}) -> {answer}"


STUBS = stubs()

if __name__ == "__main__":
    print(reference(), end="")
