"""A real HTTP server that gives the answers a test lists, however wrong they are."""

from __future__ import annotations

import re
import threading
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GOOD = {
    "status": 206,
    "headers": {"Content-Range": "bytes {start}-{end}/{size}", "ETag": '"v1"'},
    "body": "range",
}


class ScriptedServer:
    """Serves ``body``: request number i gets ``answers[i]`` (see http_cases.json), the last one again and again.

    ``requests`` holds the headers of every request and ``paths`` their paths; ``ranges`` is what the requests asked for.
    HEAD is refused with 403, as some stores do; ``methods`` tells whether one came.
    """

    def __init__(self, body: bytes, answers: list):
        self.body, self.answers = body, answers
        self.requests: list[Message] = []
        self.methods: list[str] = []
        self.paths: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/model.gguf"

    @property
    def ranges(self) -> list[tuple[str | None, str | None]]:
        """(Range, If-Range) of every request."""
        return [(headers["Range"], headers["If-Range"]) for headers in self.requests]

    def __enter__(self) -> ScriptedServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, index: int) -> dict:
        given = self.answers[min(index, len(self.answers) - 1)]
        given = {} if given == "good" else given
        headers = {**GOOD["headers"], **given.get("set", {})}
        return {**GOOD, **given, "headers": {name: value for name, value in headers.items() if value is not None}}


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            server.methods.append("HEAD")
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            server.methods.append("GET")
            answer = server.answer(len(server.requests))
            server.requests.append(self.headers)
            server.paths.append(self.path)
            match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            start, end = map(int, match.groups()) if match else (0, len(server.body) - 1)
            body = answer["body"]
            if body == "range":
                body = server.body[start : end + 1]
            elif body == "whole":
                body = server.body
            elif isinstance(body, list):
                body = server.body[body[0] : body[1]]
            else:
                body = body.encode()
            self.send_response(answer["status"], answer.get("reason"))
            for name, value in answer["headers"].items():
                self.send_header(name, value.format(start=start, end=end, size=len(server.body)))
            if answer["status"] != 204 and "Content-Length" not in answer["headers"]:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if "drop" in answer:
                self.wfile.write(body[: answer["drop"]])
                self.close_connection = True
                return
            step = answer.get("chunk", len(body)) or 1
            for at in range(0, len(body), step):
                self.wfile.write(body[at : at + step])

        def log_message(self, *_):
            pass

    return Handler
