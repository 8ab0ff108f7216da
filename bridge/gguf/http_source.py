"""A file on an http(s) server that honours Range, read through urllib; in a Pyodide worker pyodide-http carries that.

It is opened with a one-byte range, not a HEAD: the answer's Content-Range states the size, and its strong ETag (else
Last-Modified) goes out as If-Range with every later read, so that a changed file is an error and not a mixture. Broken
transfers are continued where they stopped.
"""

from __future__ import annotations

import http.client
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote, urldefrag, urlsplit

from bridge.errors import InputError, UnsupportedError

from .http_rules import Answer, HTTPSourceError, Validator, check_range_response, validator_of
from .sources import ByteSource

RETRIES = 4
FIRST_PAUSE = 0.25  # seconds; doubles with every further attempt
LONGEST_PAUSE = 8.0
LONGEST_RETRY_AFTER = 30.0
TIMEOUT = 60.0  # seconds without a byte
_SECRET_HEADERS = ("Authorization", "Cookie")
_IN_BROWSER = sys.platform == "emscripten"
# Browsers add it to every range request by themselves and let no script do it.
_OWN_HEADERS = {} if _IN_BROWSER else {"Accept-Encoding": "identity"}


class HTTPSource(ByteSource):
    """A remote file. ``requests`` counts the requests made, retries included.

    ``allow_unvalidated`` reads from a server that offers neither a strong ETag nor Last-Modified; ``identity`` is then
    None. ``sleep`` is called with the seconds to wait before another attempt.
    """

    is_remote = True

    def __init__(
        self,
        url: str,
        *,
        allow_unvalidated: bool = False,
        headers: Mapping[str, str] | None = None,
        retries: int = RETRIES,
        timeout: float = TIMEOUT,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._url = _plain_url(url)
        self._headers = dict(headers or {})
        self._retries, self._timeout, self._sleep = retries, timeout, sleep
        if _IN_BROWSER:
            _let_the_browser_fetch()
        self._opener = urllib.request.build_opener(_Redirects)
        self._known_size: int | None = None
        self._validator: Validator | None = None
        self._closed = False
        self.requests = 0
        for _ in self._range(0, 1, 1):
            pass
        if self._validator is None and not allow_unvalidated:
            raise HTTPSourceError(
                "the server offers neither a strong ETag nor Last-Modified, so reads cannot be tied to one version of the "
                "file; allow_unvalidated reads it anyway"
            )
        super().__init__(self._known_size)
        self.identity = self._validator.value if self._validator else None

    def close(self) -> None:
        self._closed = True

    def _read(self, offset: int, length: int) -> bytes:
        return b"".join(self._range(offset, offset + length, length))

    def _stream(self, offset: int, length: int, chunk: int) -> Iterator[bytes]:
        if not length:
            return
        self.reads += 1
        for piece in self._range(offset, offset + length, chunk):
            self.bytes_read += len(piece)
            yield piece

    def _range(self, start: int, end: int, chunk: int) -> Iterator[bytes]:
        """The bytes [start, end) in pieces of at most ``chunk``, continued after transient failures."""
        at, attempt = start, 0
        while True:
            try:
                for piece in self._request(start, at, end, chunk):
                    at += len(piece)
                    yield piece
                return
            except HTTPSourceError as error:
                wait = error.retry_after
                if not error.transient or attempt >= self._retries or (wait or 0) > LONGEST_RETRY_AFTER:
                    raise
                self._sleep(min(FIRST_PAUSE * 2**attempt, LONGEST_PAUSE) if wait is None else wait)
                attempt += 1

    def _request(self, start: int, at: int, end: int, chunk: int) -> Iterator[bytes]:
        """One request for [at, end), the rest of a read that began at ``start``."""
        if self._closed:
            raise HTTPSourceError("the source is closed")
        headers = {**self._headers, **_OWN_HEADERS, "Range": f"bytes={at}-{end - 1}"}
        if self._validator:
            headers["If-Range"] = self._validator.value
        with self._fetch(headers) as response:
            answer = Answer(response.status, response.reason, response.headers)
            total = check_range_response(answer, at, end, self._known_size, self._validator)
            if self._known_size is None:
                self._known_size, self._validator = total, validator_of(answer)
            while at < end:
                piece = _receive(response, min(chunk, end - at))
                if not piece:
                    # What the connection still owed by its Content-Length was lost; else the server was done.
                    lost = bool(getattr(response, "length", None))
                    raise HTTPSourceError(f"the server returned {at - start} of {end - start} bytes", transient=lost)
                at += len(piece)
                yield piece

    def _fetch(self, headers: Mapping[str, str]):
        self.requests += 1
        request = urllib.request.Request(self._url, headers=dict(headers))
        try:
            return self._opener.open(request, timeout=self._timeout)
        except urllib.error.HTTPError as response:
            return response
        except urllib.error.URLError as error:
            # No such host, nobody listening, or a certificate that does not fit (a ValueError): waiting will not help.
            final = isinstance(error.reason, (socket.gaierror, ConnectionRefusedError, ValueError))
            raise HTTPSourceError(f"network error: {_reason(error.reason)}", transient=not final) from error
        except (OSError, http.client.HTTPException) as error:
            raise HTTPSourceError(f"network error: {_reason(error)}", transient=True) from error
        except Exception as error:
            if not _IN_BROWSER:
                raise
            # A JavaScript exception, whose text holds the address.
            raise HTTPSourceError(f"network error: {getattr(error, 'name', 'Error')}", transient=True) from None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects within http and https; what identifies the caller stays with the first host."""

    def redirect_request(self, request, response, status, message, headers, url):
        if not url.lower().startswith(("http://", "https://")):
            raise HTTPSourceError("the server redirects to an address that is neither http nor https")
        redirected = super().redirect_request(request, response, status, message, headers, url)
        if redirected is not None and urlsplit(url).netloc != urlsplit(request.full_url).netloc:
            for name in _SECRET_HEADERS:
                redirected.remove_header(name)
        return redirected


def _let_the_browser_fetch() -> None:
    """Make urllib use the browser's synchronous requests, which workers may make."""
    try:
        import pyodide_http
    except ImportError:
        raise UnsupportedError("reading a URL inside Pyodide needs its package pyodide-http; load that first") from None
    pyodide_http.patch_urllib()


def _receive(response, n: int) -> bytes:
    try:
        return response.read(n)
    except (OSError, http.client.HTTPException) as error:
        raise HTTPSourceError(f"network error: {_reason(error)}", transient=True) from error


def _reason(error: Exception | str) -> str:
    """What happened, without the address that some texts repeat."""
    return getattr(error, "strerror", None) or type(error).__name__


def _plain_url(url: str) -> str:
    """The URL without its fragment, with what is not ASCII percent-encoded."""
    address = quote(urldefrag(url).url, safe=":/?#[]@!$&'()*+,;=%")
    try:
        parts = urlsplit(address)
        usable = parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise InputError("the URL cannot be used; it must be http:// or https:// with a host")
    if parts.username is not None:
        raise InputError("a URL with a user name or password cannot be used; pass an Authorization header instead")
    return address
