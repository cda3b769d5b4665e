"""Calls every method of `commands` and `files` of upstream's SDK on a sandbox of a pool, and prints what came of it as JSON.

    upstream_sdk.py NAMESPACE POOL
"""

import io
import json
import sys

from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.models import SandboxLocalTunnelConnectionConfig

# Through the router, with the SDK's own tunnel.
client = SandboxClient(connection_config=SandboxLocalTunnelConnectionConfig())
namespace, pool = sys.argv[1:]
sandbox = client.create_sandbox(pool, namespace)
commands, files = sandbox.commands, sandbox.files
results = {}

ATTEMPTS = 3
"""The tunnel, a kubectl, sometimes loses a connection on a busy machine, which says nothing about the runtime."""


def note(what, call, *arguments, **options):
    """Keeps a result, or how it failed: by which exception and which status."""
    for _ in range(ATTEMPTS):
        try:
            results[what] = plain(call(*arguments, **options))
        except Exception as error:
            cause = error.response.json() if getattr(error, "response", None) is not None else str(error)
            results[what] = {"error": type(error).__name__, "status": getattr(error, "status_code", None), "body": cause}
            if str(cause).startswith("Failed to communicate"):
                continue
        return


def plain(value):
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, list):
        # The order of a directory's entries isn't promised, times differ, and what a directory's size is depends on the file system.
        size = {"directory": None}
        return sorted((entry.name, size.get(entry.type, entry.size), entry.type, entry.mode) for entry in value)
    return value.model_dump() if hasattr(value, "model_dump") else value


def run(what, command, **options):
    note(f"run: {what}", commands.run, command, **options)


try:
    run("a program with arguments", "echo 'a  b' \"c d\" e\\ f")
    run("no shell", "echo $HOME | cat && x > y *")
    run("both streams and a code", "sh -c 'echo out; echo err >&2; exit 3'")
    run("a pipe in a shell", "sh -c 'seq 5 | tail -n 1'")
    run("a signal", "sh -c 'kill -9 $$'")
    run("a program that doesn't exist", "no-such-program x")
    run("a file that isn't a program", "/etc/passwd")
    run("an open quote", "echo 'a")
    run("an empty command", "")
    run("no input", "cat")
    run("unicode", "echo 'ä € 😀'")
    run("line ends", "printf '1\\r\\n2\\r3\\n'")
    run("no output at all", "true")
    run("large output", "seq 200000", timeout=100)
    run("bytes that aren't UTF-8", "printf 'a\\377b'")
    run("command_timeout", "sleep 2", command_timeout=0.5)
    run("a command_timeout that isn't reached", "echo fast", command_timeout=20)
    run("env", "true", env={"A": "b"})
    run("cwd", "true", cwd="/tmp")

    note("write: bytes", files.write, "a.txt", b"one")
    note("write: text", files.write, "d/e/b.txt", "zwölf\n")
    note("write: a file object", files.write, "d/stream", io.BytesIO(bytes(range(256)) * 4000))
    note("write: again", files.write, "a.txt", b"two\x00\xff\r\n--x--")
    note("write: nothing", files.write, "d/empty", b"")
    note("write: an absolute path", files.write, "/d/absolute", b"x")
    note("write: an odd name", files.write, "d/ä b;c'?#&+", b"odd")
    note("write: upwards", files.write, "../up", b"x")
    note("write: upwards all the same", files.write, "../up", b"x", allow_unsafe_paths=True)
    note("write: no name", files.write, " ", b"x")

    note("read", files.read, "a.txt")
    note("read: text", files.read, "d/e/b.txt")
    note("read: what was streamed", files.read, "d/stream")
    note("read: an odd name", files.read, "d/ä b;c'?#&+")
    note("read: an absolute path", files.read, "/d/absolute")
    note("read: nothing there", files.read, "none")
    note("read: a directory", files.read, "d")
    note("read: upwards", files.read, "../up")
    target = io.BytesIO()
    note("read_to", files.read_to, "d/stream", target)
    results["read_to: content"] = plain(target.getvalue())
    note("read_to: too much", files.read_to, "d/stream", io.BytesIO(), max_bytes=1000)
    note("read_to: nothing there", files.read_to, "none", io.BytesIO())

    note("list", files.list, "d")
    note("list: a file", files.list, "a.txt")
    note("list: nothing there", files.list, "none")
    commands.run("sh -c 'mkdir -p empty dangling && ln -s nowhere dangling/link && ln -s d link'")
    note("list: an empty directory", files.list, "empty")
    note("list: through a link", files.list, "link")
    note("list: a dangling link", files.list, "dangling")

    note("exists: a file", files.exists, "a.txt")
    note("exists: a directory", files.exists, "d/e")
    note("exists: an odd name", files.exists, "d/ä b;c'?#&+")
    note("exists: nothing there", files.exists, "none")
    note("exists: a dangling link", files.exists, "dangling/link")
    note("delete", files.delete, "a.txt")

    print(json.dumps(results))
finally:
    sandbox.terminate()
