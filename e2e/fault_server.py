"""One handler that answers as badly as a test asks: the answers of servers that pages meet, one switch each.

A test registers a Fault and gets its path; the handler counts and records every request, so tests can also assert how
many bytes and requests something took. Well-behaved files are served by bridge/serve.py, not from here.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

PREFIX = "/_fault/"
CHUNK = 64 * 1024


@dataclass
class Seen:
    """One request as it arrived; ``sent`` grows while the answer is written (bytes of body)."""

    method: str
    range: str | None
    if_range: str | None
    sent: int = 0


@dataclass
class Fault:
    """How one address answers. ``body`` is bytes, or a file that is read as it is sent.

    status             answer with this status and ``error_body`` instead of the file
    ranges             False: no Accept-Ranges, Range is ignored, the whole file comes with 200
    etag               True: a strong ETag of the content; a string: that text as it is; None: none at all
    bytes_per_second   throttle
    first_byte_after   seconds before the answer starts
    drop_after         the connection is cut after that many body bytes, on the first ``drops`` requests that reach it
    changed_body       what the address holds from request number ``change_at`` (0-based) on
    """

    body: bytes | Path
    status: int = 200
    error_body: bytes = b"<!doctype html><title>error</title>"
    ranges: bool = True
    etag: bool | str | None = True
    content_type: str = "application/octet-stream"
    bytes_per_second: float | None = None
    first_byte_after: float = 0.0
    drop_after: int | None = None
    drops: int = 1
    changed_body: bytes | Path | None = None
    change_at: int = 1
    seen: list[Seen] = field(default_factory=list)

    @property
    def bytes_sent(self) -> int:
        return sum(request.sent for request in self.seen)

    def body_now(self) -> bytes | Path:
        changed = self.changed_body is not None and len(self.seen) > self.change_at
        return self.changed_body if changed else self.body


class FaultServer:
    """The registered faults by name, and the route that answers for them."""

    def __init__(self):
        self._faults: dict[str, Fault] = {}
        self.route = Route(PREFIX + "{name:path}", self._answer, methods=["GET", "HEAD"])

    def add(self, name: str, fault: Fault) -> str:
        """Registers ``fault`` and returns its path below the server's address."""
        self._faults[name] = fault
        return PREFIX + name

    def clear(self) -> None:
        self._faults.clear()

    async def _answer(self, request: Request) -> Response:
        fault = self._faults.get(request.path_params["name"])
        if fault is None:
            return Response(b"no such fault", status_code=404)
        seen = Seen(request.method, request.headers.get("range"), request.headers.get("if-range"))
        fault.seen.append(seen)
        await asyncio.sleep(fault.first_byte_after)
        if fault.status != 200:
            return Response(fault.error_body, status_code=fault.status, media_type="text/html")
        body = fault.body_now()
        size = body.stat().st_size if isinstance(body, Path) else len(body)
        tag = entity_tag(fault, body)
        headers = {"content-type": fault.content_type} | ({"etag": tag} if tag else {})
        start, stop, status = 0, size, 200
        if fault.ranges:
            headers["accept-ranges"] = "bytes"
            asked = requested_range(seen, size, tag)
            if asked == "unsatisfiable":
                return Response(status_code=416, headers={"content-range": f"bytes */{size}"})
            if asked:
                start, stop = asked
                status = 206
                headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
        headers["content-length"] = str(stop - start)
        if request.method == "HEAD":
            return Response(status_code=status, headers=headers)
        return StreamingResponse(_send(fault, seen, body, start, stop), status_code=status, headers=headers)


def entity_tag(fault: Fault, body: bytes | Path) -> str | None:
    """The ETag that the fault sends for ``body``: its own text, or one that changes with the content."""
    if isinstance(fault.etag, str):
        return fault.etag
    if not fault.etag:
        return None
    content = body if isinstance(body, bytes) else f"{body.stat().st_size}-{body.stat().st_mtime_ns}".encode()
    return f'"{hashlib.sha256(content).hexdigest()[:16]}"'


def requested_range(seen: Seen, size: int, tag: str | None) -> tuple[int, int] | str | None:
    """(start, stop) of a single byte range, None for the whole file, or "unsatisfiable"."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", seen.range or "")
    if not match or match.groups() == ("", "") or (seen.if_range is not None and seen.if_range != tag):
        return None
    first, last = match.groups()
    if first == "":
        return max(0, size - int(last)), size
    start, stop = int(first), min(size, int(last) + 1) if last else size
    return (start, stop) if start < size and start < stop else "unsatisfiable"


async def _send(fault: Fault, seen: Seen, body: bytes | Path, start: int, stop: int) -> AsyncIterator[bytes]:
    drop = fault.drop_after if fault.drop_after is not None and len(fault.seen) <= fault.drops else None
    opened = body.open("rb") if isinstance(body, Path) else None
    try:
        at = start
        while at < stop:
            length = min(CHUNK, stop - at)
            if drop is not None and seen.sent + length >= drop:
                length = drop - seen.sent
            if opened:
                opened.seek(at)
                piece = opened.read(length)
            else:
                piece = body[at : at + length]
            yield piece
            seen.sent += len(piece)
            at += len(piece)
            if drop is not None and seen.sent >= drop:
                raise ConnectionAbortedError("the test asked for a dropped connection")
            if fault.bytes_per_second:
                await asyncio.sleep(len(piece) / fault.bytes_per_second)
    finally:
        if opened:
            opened.close()
