"""Ends a sandbox with the process that asks for it, however that process ends: `python -m podbay.leash`.

Local sandboxes have this from the kernel. A pod is far away from the process that uses it, so a process nearby waits
for the end of a pipe, and then deletes the pod.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import IO, Any

import podbay


class Leash:
    """While this is held, the sandbox may live. It needn't be there yet."""

    def __init__(self, settings: dict[str, Any], sandbox: str) -> None:
        # Isolated, so that nothing in the working directory is imported; and in a session of its own, because whoever
        # ends this process may end all of its group.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-m", "podbay.leash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._pipe().write(json.dumps([settings, sandbox]).encode() + b"\n")
        self._pipe().flush()

    def _pipe(self) -> IO[bytes]:
        if self._process.stdin is None:
            raise RuntimeError("the leash has no pipe")
        return self._process.stdin

    def let_go(self) -> None:
        """Ends the sandbox, if it is still there, and waits for that."""
        self._pipe().close()
        self._process.wait()


def main() -> None:
    """Waits until nobody holds the leash any more."""
    settings, sandbox = json.loads(sys.stdin.buffer.readline())
    sys.stdin.buffer.read()
    podbay.Provider(**settings).delete(sandbox)


if __name__ == "__main__":
    main()
