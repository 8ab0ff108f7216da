"""The development server: static files with byte ranges, validators and the headers for cross-origin isolation.

Files, ranges and conditional requests are Starlette's; what is added is isolation (COOP/COEP, so that a page gets
SharedArrayBuffer), revalidation on every load, and the media types that browsers insist on. Links inside the folder
are followed, since build/site consists of them; a request path cannot leave the folder.
"""

from __future__ import annotations

import mimetypes
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bridge.errors import InputError, UnsupportedError



class ServerPackagesMissing(UnsupportedError, ImportError):
    """Starlette or uvicorn is not installed."""


try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import RedirectResponse
    from starlette.routing import BaseRoute, Mount, Route
    from starlette.staticfiles import StaticFiles
except ImportError as error:
    raise ServerPackagesMissing(
        f"the development server needs {error.name}; install the package with its 'dev' extra"
    ) from error

START_TIMEOUT_S = 10.0
DEMO_PATH = "web/demo/"
MEDIA_TYPES = {  # what a system's own table lacks or gets wrong
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".ts": "text/plain",
    ".wasm": "application/wasm",
    ".gguf": "application/octet-stream",
    ".snapshot": "application/octet-stream",
    ".whl": "application/octet-stream",
}
ISOLATION = (
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-embedder-policy", b"require-corp"),
)
ALWAYS = (
    (b"cache-control", b"no-cache"),  # keep, but ask each time: an edit shows at the next reload
    (b"cross-origin-resource-policy", b"cross-origin"),
)


class _AddHeaders:
    """ASGI wrapper that adds headers to every answer, unless the application set them itself."""

    def __init__(self, app, headers: Sequence[tuple[bytes, bytes]]):
        self._app = app
        self._headers = headers

    async def __call__(self, scope, receive, send):
        async def send_with_headers(message):
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(h for h in self._headers if h[0] not in present)]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class _Files(StaticFiles):
    def lookup_path(self, path: str):
        if "\0" in path:
            raise HTTPException(404)
        return super().lookup_path(path)


def create_app(directory: str | Path, *, isolated: bool = True, routes: Sequence[BaseRoute] = ()) -> _AddHeaders:
    """The ASGI application that serves ``directory``; ``routes`` are asked first, ``isolated`` sets COOP and COEP.

    Raises InputError when the folder does not exist.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(directory)!r} to serve")
    for suffix, media_type in MEDIA_TYPES.items():
        mimetypes.add_type(media_type, suffix)
    own = list(routes)
    if (folder / DEMO_PATH).is_dir() and not (folder / "index.html").exists():
        own.append(Route("/", lambda request: RedirectResponse(DEMO_PATH)))
    own.append(Mount("/", _Files(directory=folder, html=True, follow_symlink=True)))
    return _AddHeaders(Starlette(routes=own), ALWAYS + (ISOLATION if isolated else ()))


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one. Raises InputError when the address cannot be had."""
    try:
        return socket.create_server((host, port))
    except OverflowError as error:
        raise InputError(f"a port is a number from 0 to 65535, got {port}") from error
    except OSError as error:
        reason = os.strerror(error.errno) if isinstance(error.errno, int) and error.errno > 0 else error.strerror
        raise InputError(f"cannot listen on port {port} of {host} ({reason}); choose another port") from error


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{'localhost' if host in ('0.0.0.0', '127.0.0.1') else host}:{port}"


def serve(directory: str | Path = "build/site", host: str = "127.0.0.1", port: int = 8080, *, isolated: bool = True) -> None:
    """Serves ``directory`` until interrupted and prints the address; raises InputError for a bad folder or port."""
    app = create_app(directory, isolated=isolated)
    with open_socket(host, port) as listening:
        print(f"serving {directory} at {address_of(listening)}/ (stop with Ctrl-C)", flush=True)
        _server(app).run(sockets=[listening])
    # The server ends when it is interrupted, and uvicorn says so by raising the signal again; a shell that started us in
    # the background has it ignored.
    raise KeyboardInterrupt


@contextmanager
def running_server(app, host: str = "127.0.0.1", port: int = 0, *, log_level: str = "warning") -> Iterator[str]:
    """Runs an ASGI application in a thread and yields its address, such as ``http://localhost:40123``."""
    with open_socket(host, port) as listening:
        server = _server(app, log_level)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise UnsupportedError(f"the server did not start within {START_TIMEOUT_S:.0f} seconds")
            time.sleep(0.01)
        try:
            yield address_of(listening)
        finally:
            server.should_exit = True
            thread.join(START_TIMEOUT_S)


def _server(app, log_level: str = "warning") -> uvicorn.Server:
    # Open transfers must not hold up the end: a browser may keep one for as long as it likes.
    config = uvicorn.Config(app, log_level=log_level, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
    return uvicorn.Server(config)
