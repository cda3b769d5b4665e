"""Requests that no client of good will sends."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx2
import pytest
from conftest import PODBAY, listening, running, token_file, wait_until

TOKEN, OTHER = "0123456789abcdef0123", "fedcba9876543210fedc"
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def initialize(version="2025-11-25"):
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


@pytest.fixture
def server(environment, tmp_path):
    tokens = token_file(tmp_path, TOKEN, OTHER)
    with listening(environment, "--token-file", tokens, "--max-sessions", "2") as (_, url):
        yield url


def post(url, message, token=TOKEN, **headers):
    content = message if isinstance(message, bytes) else json.dumps(message).encode()
    headers = {**ACCEPT, "Authorization": f"Bearer {token}", **headers}
    return httpx2.post(url, content=content, headers=headers, timeout=60)


def open_session(url, token=TOKEN):
    answer = post(url, initialize(), token)
    assert answer.status_code == 200, answer.text
    return answer.headers["mcp-session-id"]


def list_tools(url, session, token):
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    return post(url, message, token, **{"Mcp-Session-Id": session})


def test_a_session_belongs_to_its_token(server):
    session = open_session(server)
    assert list_tools(server, session, TOKEN).status_code == 200
    for token, status in [(OTHER, 404), ("x" * 20, 401)]:
        assert list_tools(server, session, token).status_code == status
        headers = {**ACCEPT, "Authorization": f"Bearer {token}", "Mcp-Session-Id": session}
        assert httpx2.get(server, headers=headers).status_code == status
        assert httpx2.delete(server, headers=headers).status_code == status
    assert list_tools(server, session, TOKEN).status_code == 200
    assert list_tools(server, "none", TOKEN).status_code == 404


def test_no_token_no_answer(server):
    answer = httpx2.post(server, json=initialize(), headers=ACCEPT)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "session" not in str(answer.headers).lower()


def test_web_pages_are_refused(server):
    for headers in [
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
    ]:
        answer = post(server, initialize(), **headers)
        assert answer.status_code == 403, (headers, answer.text)


def test_an_origin_can_be_allowed(environment):
    with listening(environment, "--allow-origin", "https://good.example:443", "--allow-host", "proxy.example") as (_, url):
        assert post(url, initialize(), Origin="https://good.example").status_code == 200
        assert post(url, initialize(), Origin="https://good.example:444").status_code == 403
        assert post(url, initialize(), Host="proxy.example").status_code == 200


def test_sessions_are_bounded(server):
    first = open_session(server)
    open_session(server, OTHER)
    answer = post(server, initialize())
    assert answer.status_code == 503, answer.text
    headers = {"Authorization": f"Bearer {TOKEN}", "Mcp-Session-Id": first}
    assert httpx2.delete(server, headers=headers).is_success
    open_session(server)


VERSION = "io.modelcontextprotocol/protocolVersion"
ALONE = {VERSION: "2025-11-25", "io.modelcontextprotocol/clientCapabilities": {}}


def request(method, number=5, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def run(command, number=5, **params):
    return request("tools/call", number, name="run", arguments={"command": command}, **params)


def result(answer):
    """The result in an answer, which is JSON or a stream of events."""
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.removeprefix("data: ").startswith("{")]
    return json.loads(lines[-1])["result"]


def text(answer):
    return "".join(block.get("text", "") for block in result(answer)["content"])


@pytest.mark.parametrize("inside", [False, True], ids=["without a session", "with a session"])
def test_nothing_is_done_outside_of_a_session(server, environment, inside):
    """A request that stands alone by its _meta got a sandbox of its own, which --max-sessions didn't count."""
    before = running(environment)
    session = {"Mcp-Session-Id": open_session(server)} if inside else {}
    methods = [run("touch here"), request("tools/list"), request("resources/list"), request("ping"), request("no/such")]
    methods.append(request("resources/read", uri="podbay://file/etc/hostname"))
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "2099-01-01"]:
        for message in methods:
            params = {**message["params"], "_meta": {**ALONE, VERSION: version}}
            answer = post(server, {**message, "params": params}, **session, **{"MCP-Protocol-Version": version})
            assert answer.status_code == 400, (version, message, answer.text)
            error = answer.json()
            assert error["id"] == 5
            if version > "2026":
                assert error["error"]["data"]["supported"][-1] == "2025-11-25"
            else:
                assert "initialize" in error["error"]["message"]
    if not inside:
        for message in [*methods, {"jsonrpc": "2.0", "method": "notifications/initialized"}, {"jsonrpc": "2.0", "id": 1, "result": {}}]:
            for version in ["2025-11-25", "2026-07-28"]:
                answer = post(server, message, **{"MCP-Protocol-Version": version})
                assert answer.status_code == 400, (message, answer.text)
    assert running(environment) == before
    # Which versions there are can be asked by anybody.
    asked = post(server, request("server/discover", _meta=ALONE), **session, **{"MCP-Protocol-Version": "2025-11-25"})
    assert "2026-07-28" not in result(asked)["supportedVersions"]


def test_doubled_keys_open_no_uncounted_session(server):
    """Both sides have to read a message in the same way."""
    body = json.dumps(initialize())
    for doubled in [body.replace('{"jsonrpc"', '{"method": "ping", "jsonrpc"', 1), body[:-1] + ', "method": "ping"}']:
        for _ in range(5):
            answer = post(server, doubled.encode())
            if session := answer.headers.get("mcp-session-id"):
                assert list_tools(server, session, TOKEN).status_code == 200
                httpx2.delete(server, headers={"Authorization": f"Bearer {TOKEN}", "Mcp-Session-Id": session})
    first, second = open_session(server), open_session(server)
    assert first != second
    assert post(server, initialize()).status_code == 503


@contextmanager
def sent(url, message, token=TOKEN, **headers):
    """A connection that a message was sent on, and whose answer nobody has read."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    connection.request("POST", place.path, json.dumps(message), {**ACCEPT, "Authorization": f"Bearer {token}", **headers})
    yield connection
    connection.close()


def test_sandboxes_are_bounded_too(server, environment):
    """A session that ended while its sandbox was created made room for the next one at once."""
    before, most = len(running(environment)), 0
    for _ in range(8):
        answer = post(server, initialize())
        if answer.status_code == 503:
            continue
        session = {"Mcp-Session-Id": answer.headers["mcp-session-id"]}
        post(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **session)
        with sent(server, run("sleep 5"), **session):
            time.sleep(0.05)
            httpx2.delete(server, headers={"Authorization": f"Bearer {TOKEN}", **session})
        most = max(most, len(running(environment)) - before)
    assert most <= 2
    wait_until(lambda: len(running(environment)) == before, "sandboxes are left")
    wait_until(lambda: post(server, initialize()).status_code == 200, "there is no place any more")


def test_clients_that_hang_up_while_they_initialize_leave_places(environment):
    with listening(environment, "--max-sessions", "2", "--idle-ttl", "1s") as (_, url):
        for number in range(20):
            with sent(url, initialize()):
                time.sleep(number * 0.0005)
        wait_until(lambda: post(url, initialize()).status_code == 200, "there is no place any more")


def test_a_shared_sandbox_bounds_its_calls(environment):
    """Without sessions, by the protocol's later versions: one sandbox, and 64 calls at once."""
    headers = {"MCP-Protocol-Version": "2025-11-25"}
    with listening(environment, "--sandbox", "bounded") as (_, url):
        try:
            with ExitStack() as calls:
                for _ in range(64):
                    calls.enter_context(sent(url, run("sleep 300", _meta=ALONE), **headers))
                wait_until(lambda: "too many calls" in text(post(url, run("true", _meta=ALONE), **headers)), "it isn't full")
                assert [name for name in running(environment) if "bounded" in name] == ["bounded"]
            # Whoever hangs up makes room.
            wait_until(lambda: text(post(url, run("true", _meta=ALONE), **headers)) == "[exit code 0]", "it is full")
        finally:
            subprocess.run([PODBAY, "delete", "bounded"], env=environment, check=True, capture_output=True)


def memory(process):
    """MiB of a process."""
    with open(f"/proc/{process.pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) >> 10


def test_answers_are_not_kept(environment):
    with listening(environment) as (process, url):
        session = {"Mcp-Session-Id": open_session(url)}
        post(url, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **session)
        post(url, run("head -c 1048576 /dev/zero | tr '\\0' x > big"), **session)
        read = {"uri": "podbay://file/workspace/big"}
        assert len(post(url, request("resources/read", **read), **session).text) > 1 << 20
        before = memory(process)
        for number in range(100):
            post(url, request("resources/read", 10 + number, **read), **session)
        for number in range(100):
            with sent(url, request("resources/read", 200 + number, **read), **session):
                cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 200 + number}}
                post(url, cancelled, **session)
        assert memory(process) < before + 60


def test_a_lost_connection_is_resumed(environment):
    with listening(environment) as (_, url):
        session = {"Mcp-Session-Id": open_session(url)}
        post(url, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **session)
        headers = {**ACCEPT, **session}
        with httpx2.stream("POST", url, json=run("sleep 3; echo late"), headers=headers, timeout=30) as answer:
            event = next(line.removeprefix("id:").strip() for line in answer.iter_lines() if line.startswith("id:"))
        # Longer than what has ended is kept.
        time.sleep(1.5)
        resumed = httpx2.get(url, headers={"Accept": "text/event-stream", **session, "Last-Event-ID": event}, timeout=30)
        assert text(resumed).startswith("late\n"), resumed.text


@contextmanager
def user(uid):
    """Sockets that are opened now are this user's."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@needs_root
@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost"])
def test_other_users_need_a_token(environment, tmp_path, address):
    """Without one, every user of the machine could run commands as the server's."""

    def asked(url, uid, **headers):
        place = urlsplit(url)
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
        with user(uid):
            connection.connect()
        connection.request("POST", place.path, json.dumps(initialize()), {**ACCEPT, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    listen = f"[{address}]:0" if ":" in address else f"{address}:0"
    with listening(environment, address=listen) as (_, url):
        status, body = asked(url, 54321)
        assert (status, "54321" in body, "--token-file" in body) == (403, True, True), body
        assert asked(url, 0)[0] == 200
    with listening(environment, "--token-file", token_file(tmp_path, TOKEN), address=listen) as (_, url):
        assert asked(url, 54321)[0] == 401
        assert asked(url, 54321, Authorization=f"Bearer {TOKEN}")[0] == 200


@needs_root
def test_strangers_who_hang_up_are_strangers(environment):
    """Older kernels show a socket that was closed as root's."""
    with listening(environment, "--sandbox", "quiet") as (_, url):
        try:
            place = urlsplit(url)
            body = json.dumps(run("echo was here >> guests", _meta=ALONE))
            head = [f"POST {place.path} HTTP/1.1", "Host: localhost", "MCP-Protocol-Version: 2025-11-25"]
            head += [f"{name}: {value}" for name, value in {**ACCEPT, "Content-Length": len(body)}.items()]
            for number in range(50):
                with user(54321):
                    stranger = socket.create_connection((place.hostname, place.port))
                stranger.sendall("\r\n".join([*head, "", body]).encode())
                time.sleep(number * 0.001)
                stranger.close()
            time.sleep(1)
            headers = {"MCP-Protocol-Version": "2025-11-25"}
            assert text(post(url, run("test -e guests || echo nobody", _meta=ALONE), **headers)).startswith("nobody")
        finally:
            subprocess.run([PODBAY, "delete", "quiet"], env=environment, check=True, capture_output=True)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o604, 0o660, 0o644, 0o620, 0o602, 0o666])
def test_token_files_are_private(environment, tmp_path, mode):
    tokens = token_file(tmp_path, TOKEN)
    os.chmod(tokens, mode)
    if mode & 0o066 == 0:
        with listening(environment, "--token-file", tokens) as (_, url):
            open_session(url)
        return
    command = [PODBAY, "mcp", "--listen", "127.0.0.1:0", "--token-file", tokens]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 125, done
    assert f"chmod 600 {tokens}" in done.stderr, done.stderr


def test_bodies_are_bounded(server):
    assert post(server, b" " * (17 << 20)).status_code == 413


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"jsonrpc":"2.0"}', b"\xff\xfe", b'{"method":"initialize"}'])
def test_malformed_messages_are_refused(server, body):
    answer = post(server, body)
    assert 400 <= answer.status_code < 500, answer.text
    open_session(server)


def test_other_paths_lead_nowhere(server):
    assert post(server.removesuffix("/mcp") + "/", initialize()).status_code == 404
    assert post(server + "/x", initialize()).status_code == 404


def test_others_need_a_token(environment, tmp_path):
    """Whoever can reach the port could run commands."""
    for arguments, expected in [
        (["--listen", "0.0.0.0:0"], "a token is needed"),
        (["--listen", "[::]:0"], "a token is needed"),
        (["--listen", "nowhere"], "ADDRESS:PORT"),
        (["--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "none")], "can't be read"),
        (["--token-file", "x"], "--listen"),
    ]:
        done = subprocess.run([PODBAY, "mcp", *arguments], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 125, done
        assert expected in done.stderr, done.stderr


def talk(environment, *lines, arguments=()):
    """What a server answers to these lines, the last of which ends it."""
    data = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    command = [PODBAY, "mcp", *arguments]
    done = subprocess.run(command, env=environment, input=data, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_malformed_lines_are_survived(environment):
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    listing = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
    answers = talk(
        environment, initialize(), initialized, b"{\n", b"\n", b"\xff\xff\n", b"[1]\n", b"x" * (17 << 20) + b"\n", listing
    )
    assert [answer for answer in answers if answer.get("id") == 7 and "tools" in answer["result"]], answers


def test_a_client_that_says_nothing_is_no_failure(environment):
    assert talk(environment) == []


def test_huge_arguments(environment):
    """Arguments of megabytes are content, and an unknown tool's name isn't repeated at length."""
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}

    def call(number, name, arguments):
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}

    answers = talk(
        environment,
        initialize(),
        initialized,
        call(2, "write", {"path": "big", "content": "x" * (8 << 20)}),
        call(3, "n" * (1 << 20), {}),
        call(4, "read", {"path": "p" * (1 << 20)}),
    )
    by_id = {answer["id"]: answer for answer in answers}
    assert "8388608 bytes" in by_id[2]["result"]["content"][0]["text"]
    assert len(json.dumps(by_id[3])) < 1000
    assert by_id[4]["result"]["isError"]
