"""What a server's answer to a range request must say before its bytes may be used.

Reading one file takes many requests, and the failure to guard against is not one that fails but one that succeeds
against another version of the file. ``web/byte_source/http_rules.js`` holds the same rules; both are tested with
``tests/gguf/http_cases.json``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from bridge.errors import SourceError

TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
MAX_EXACT = 2**53 - 1  # what a JavaScript number holds exactly; no file is larger, and both faces agree
_CONTENT_RANGE = re.compile(r"bytes (\d{1,20})-(\d{1,20})/(\d{1,20})", re.ASCII | re.IGNORECASE)
_UNSATISFIED = re.compile(r"bytes \*/(\d{1,20})", re.ASCII | re.IGNORECASE)


class HTTPSourceError(SourceError):
    """A server's answer that cannot be used; ``status`` is its HTTP status, ``transient`` says that trying again may help."""

    def __init__(self, message: str, *, status: int | None = None, transient: bool = False, retry_after: float | None = None):
        super().__init__(message)
        self.status = status
        self.transient = transient
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Validator:
    """What reads are pinned to: the name of a header and its value when the file was opened."""

    header: str
    value: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and headers of a response; ``headers.get`` ignores case."""

    status: int
    reason: str
    headers: Mapping[str, str]

    @property
    def status_line(self) -> str:
        return f"{self.status} {self.reason or ''}".strip()

    def header(self, name: str) -> str | None:
        value = self.headers.get(name)
        return value.strip() if value is not None else None


def validator_of(answer: Answer) -> Validator | None:
    """A strong ETag, else Last-Modified, else None.

    A weak ETag only promises that the content means the same, and servers must ignore it in If-Range (RFC 9110, 13.1.5).
    """
    etag = answer.header("ETag")
    if etag and not etag.upper().startswith("W/"):
        return Validator("ETag", etag)
    modified = answer.header("Last-Modified")
    return Validator("Last-Modified", modified) if modified else None


def check_range_response(answer: Answer, start: int, end: int, size: int | None, validator: Validator | None) -> int:
    """The file's total size; raises HTTPSourceError unless the answer is bytes [start, end) of the file that was pinned.

    ``size`` and ``validator`` are None while the file is being opened.
    """
    if answer.status == 200:
        raise _whole_entity(answer, validator)
    if answer.status == 416:
        _refuse_resized(answer, size)
    if answer.status >= 400:
        raise HTTPSourceError(
            answer.status_line,
            status=answer.status,
            transient=answer.status in TRANSIENT_STATUS,
            retry_after=_retry_after(answer.header("Retry-After")),
        )
    if answer.status != 206:
        raise HTTPSourceError(
            f"the server did not honour the range request: it answered {answer.status_line}", status=answer.status
        )
    _refuse_encoded(answer)
    text = answer.header("Content-Range")
    match = _CONTENT_RANGE.fullmatch(text or "")
    first, last, total = map(int, match.groups()) if match else (0, 0, MAX_EXACT + 1)
    if max(first, last, total) > MAX_EXACT:
        got = "the header is missing" if text is None else f'it says "{text[:80]}"'
        raise HTTPSourceError(f"the server returned no usable Content-Range: {got}")
    if (first, last) != (start, end - 1):
        raise HTTPSourceError(f"the server returned bytes {first}-{last}, not {start}-{end - 1}")
    _refuse_changed(answer, total, size, validator)
    _refuse_length(answer, end - start)
    return total


def _refuse_length(answer: Answer, wanted: int) -> None:
    """A Content-Length that is not the range's tells of a wrong body before it is waited for."""
    text = answer.header("Content-Length") or ""
    length = int(text) if re.fullmatch("[0-9]{1,20}", text) else wanted
    if length < wanted:
        raise HTTPSourceError(f"the server returned {length} of {wanted} bytes")
    if length > wanted:
        raise HTTPSourceError(f"the server returned more than the {wanted} bytes of the range")


def _refuse_changed(answer: Answer, total: int, size: int | None, validator: Validator | None) -> None:
    if size is not None and total != size:
        raise HTTPSourceError(f"the file is now {total} bytes, was {size}: it changed since it was opened")
    if validator is None:
        return
    now = answer.header(validator.header)
    if now != validator.value:
        raise HTTPSourceError(
            f"the file changed identity since it was opened: its {validator.header} was {validator.value}, "
            + (f"is now {now}" if now else "now there is none")
        )


def _refuse_encoded(answer: Answer) -> None:
    """Ranges count the bytes of the encoded form, so an encoded answer is bytes of something else."""
    encoding = answer.header("Content-Encoding")
    if encoding and encoding.lower() != "identity":
        raise HTTPSourceError(f"the server sent the range encoded (Content-Encoding: {encoding}); only identity can be read")


def _whole_entity(answer: Answer, validator: Validator | None) -> HTTPSourceError:
    if validator is not None and answer.header(validator.header) != validator.value:
        message = (
            f"the file changed identity since it was opened ({validator.header} was {validator.value}): "
            "the server sent the whole entity instead of the range"
        )
    else:
        message = "the server did not honour the range request: it sent the whole entity with status 200"
    return HTTPSourceError(message, status=200)


def _refuse_resized(answer: Answer, size: int | None) -> None:
    match = _UNSATISFIED.fullmatch(answer.header("Content-Range") or "")
    if match is None or int(match[1]) > MAX_EXACT:
        return
    total = int(match[1])
    if size is None:
        raise HTTPSourceError(f"the file has {total} bytes, nothing to read a range of")
    _refuse_changed(answer, total, size, None)


def _retry_after(text: str | None) -> float | None:
    """Seconds to wait, from a number of seconds or a date."""
    if not text:
        return None
    if text.isdecimal() and text.isascii():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None
