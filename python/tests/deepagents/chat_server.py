"""A scripted chat model behind HTTP, for programs that create their own client; it records the requests."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChatServer:
    """Implements as much of OpenAI's chat completions as their client needs, streamed or not."""

    def __init__(self, script: dict[str, list[Any]]) -> None:
        self.script = script
        self.heard: list[list[dict[str, Any]]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                owner.heard.append(request["messages"])
                turn = owner.turn(request["messages"])
                if request.get("stream"):
                    self.reply("text/event-stream", chunks(turn))
                else:
                    self.reply("application/json", json.dumps(whole(turn)))

            def reply(self, kind, body):
                data = body.encode()
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def turn(self, messages):
        """Chooses the turn by the messages; a request that isn't in the script gets a short answer."""
        asked = max(at for at, message in enumerate(messages) if message["role"] == "user")
        turns = next((turns for key, turns in self.script.items() if key in text(messages[asked])), None)
        if turns is None:
            return {"role": "assistant", "content": "well"}
        turn = turns[sum(message["role"] == "assistant" for message in messages[asked:])]
        if isinstance(turn, str):
            return {"role": "assistant", "content": turn}
        name, arguments = turn
        called = {"id": f"call_{len(messages)}", "type": "function"}
        called["function"] = {"name": name, "arguments": json.dumps(arguments)}
        return {"role": "assistant", "content": None, "tool_calls": [called]}


def text(message) -> str:
    """Returns a message's text, in whichever form it has."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def whole(turn):
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "message": turn, "finish_reason": "tool_calls" if "tool_calls" in turn else "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def chunks(turn) -> str:
    delta = dict(turn)
    delta["tool_calls"] = [{"index": 0, **called} for called in turn.get("tool_calls", [])]
    shared = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    reason = whole(turn)["choices"][0]["finish_reason"]
    events = [
        {**shared, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**shared, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
    ]
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
