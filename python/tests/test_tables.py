"""The package covers the core's tables of operations and errors."""

import podbay
from podbay import _native, errors

# The method that offers each operation. `start`, `write` and `signal` have several; one is enough.
METHODS = {
    "hello": "hello",
    "protections": "protections",
    "exec.run": "run",
    "exec.start": "start",
    "exec.attach": "attach",
    "exec.signal": "signal",
    "exec.status": "status",
    "exec.list": "commands",
    "read": "read",
    "write": "write",
    "edit": "edit",
    "ls": "ls",
    "stat": "stat",
    "tree": "tree",
    "glob": "glob",
    "grep": "grep",
    "delete": "delete",
    "mkdir": "mkdir",
    "move": "move",
    "download": "download",
}


def test_every_operation_is_offered_sync_and_async():
    """`tree` was once missing."""
    # A running command is an object of its own, and so is its input.
    assert {*METHODS, "exec.input"} == set(_native._OPERATIONS)
    for method in METHODS.values():
        assert callable(getattr(podbay.Sandbox, method))
        assert callable(getattr(podbay.Sandbox, f"a{method}"))
    assert callable(podbay.Exec.write)
    assert callable(podbay.AsyncExec.write)


def test_every_error_has_its_exception():
    codes = {}
    for code, name in _native._ERRORS:
        codes.setdefault(name, set()).add(code)
    assert {"unreachable"} == codes["Unreachable"]
    for name, own in codes.items():
        exception = getattr(errors, name)
        assert getattr(podbay, name) is exception
        assert name in errors.__all__
        # The code of an operation is passed in; every other failure has the code of its class.
        assert exception("message").code in own | ({"unknown"} if name == "OperationError" else set())


def test_the_old_name_still_works():
    assert podbay.AccessDenied is podbay.PermissionDenied
