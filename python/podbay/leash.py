"""Deletes a sandbox when the process that uses it ends, however it ends: `python -m podbay.leash`.

The kernel does this for local sandboxes. For pods, a small process on this machine waits until the pipe from its parent
closes, and then deletes the pod.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import IO, Any

import podbay


class Leash:
    """Keeps a sandbox alive while it is held. The sandbox needn't exist yet."""

    def __init__(self, settings: dict[str, Any], sandbox: str) -> None:
        # Isolated (-I), so that nothing is imported from the working directory; and in its own session, because whoever
        # kills this process may kill its whole process group.
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
        """Deletes the sandbox if it still exists, and waits for that."""
        self._pipe().close()
        self._process.wait()


def main() -> None:
    """Waits until nobody holds the leash, then deletes the sandbox."""
    settings, sandbox = json.loads(sys.stdin.buffer.readline())
    sys.stdin.buffer.read()
    podbay.Provider(**settings).delete(sandbox)


if __name__ == "__main__":
    main()
