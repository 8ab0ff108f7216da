"""String arrays of a GGUF header (vocabulary, merges): cut in one pass at C speed, decoded when first looked at.

A string is stored as a little-endian u64 length and its bytes. Walking 262,144 of them one by one takes most of a
second in Pyodide. But for strings under 256 bytes the seven high bytes of every length are zero, so ``bytes.split``
finds all the cuts; each cut is then checked against the length byte in front of it, which makes it exact. Where a check
fails (a string that is empty, long or ends in zeros) the walk goes one by one for a while.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from struct import Struct

from .errors import GGUFLimitExceeded, GGUFTruncated

U64 = Struct("<Q")
_SEPARATOR = b"\0" * 7
_WINDOW = 64 * 1024  # bytes cut at once
_STRIDE = 512  # strings walked after the first failed check; doubles with every further one
_last = itemgetter(-1)


class StringArray(Sequence):
    """The strings of one metadata array as a sequence of ``str``, decoded on first use.

    Vocabularies hold byte sequences that are not always UTF-8: such bytes come as lone surrogates
    (``errors="surrogateescape"``), so ``s.encode("utf-8", "surrogateescape")`` gives the stored bytes back.
    """

    __slots__ = ("_raw", "_decoded")

    def __init__(self, raw: list[bytes]):
        self._raw: list[bytes] | None = raw
        self._decoded: list[str] | None = None

    def tolist(self) -> list[str]:
        """All strings; decoded once, the same list every time."""
        if self._decoded is None:
            self._decoded = _decode_all(self._raw)
            self._raw = None
        return self._decoded

    def __len__(self) -> int:
        return len(self._raw if self._decoded is None else self._decoded)

    def __getitem__(self, index):
        if self._decoded is not None:
            return self._decoded[index]
        if isinstance(index, slice):
            return _decode_all(self._raw[index])
        return self._raw[index].decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def __eq__(self, other) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return self.tolist() == list(other)

    __hash__ = None

    def __repr__(self) -> str:
        return f"<StringArray of {len(self)}>"


class StringRun:
    """Reads ``count`` length-prefixed strings from ``position`` on, as far as the bytes given reach.

    ``read(data)`` is called again with a longer prefix after a GGUFTruncated and goes on where it stopped; then
    ``strings`` holds all of them and ``position`` is behind the last. ``label`` names the array in messages.
    """

    def __init__(self, position: int, count: int, max_bytes: int, label: str):
        self.position = self._start = position
        self.strings: list[bytes] = []
        self._count, self._max_bytes, self._label = count, max_bytes, label

    def read(self, data: bytes) -> None:
        """Raises GGUFTruncated where ``data`` ends first, GGUFLimitExceeded for a string above the limit."""
        stride = _STRIDE
        while len(self.strings) < self._count:
            all_checked = self._cut_window(data)
            if all_checked:
                stride = _STRIDE
            else:
                self._walk(data, min(self._count, len(self.strings) + stride))
                stride *= 2

    def _cut_window(self, data: bytes) -> bool:
        """Take the strings of one window that can be cut; true if there were some and every cut checked out."""
        # pieces[0] is the low byte of the first length, every further piece a string and the low byte of the next length.
        window = data[self.position : self.position + _WINDOW]
        pieces = window.split(_SEPARATOR, self._count - len(self.strings) + 1)
        available = len(pieces) - 2  # the last piece ends where the window does, not where a string does
        if available < 1 or len(pieces[0]) != 1:
            return False
        if b"" in pieces:
            available = min(available, pieces.index(b"") - 1)
        sizes = list(map(len, pieces[1 : available + 1]))
        expected = list(map((1).__add__, map(_last, pieces[:available])))
        good = available
        if sizes != expected:
            good = next(i for i, (size, wanted) in enumerate(zip(sizes, expected)) if size != wanted)
        self.strings += [piece[:-1] for piece in pieces[1 : good + 1]]
        self.position += 7 * good + sum(sizes[:good])
        return good == len(pieces) - 2

    def _walk(self, data: bytes, upto: int) -> None:
        """Read strings one by one until there are ``upto``."""
        strings, position, size = self.strings, self.position, len(data)
        while len(strings) < upto:
            start = position + 8
            if start > size:
                raise self._truncated(start)
            (length,) = U64.unpack_from(data, position)
            if length > self._max_bytes:
                raise GGUFLimitExceeded(
                    f"string {len(strings)} of {self._label} claims {length} bytes; "
                    f"the limit is {self._max_bytes} (max_string_bytes)"
                )
            if start + length > size:
                raise self._truncated(start + length)
            position = start + length
            strings.append(data[start:position])
            self.position = position

    def _truncated(self, end: int) -> GGUFTruncated:
        """The string being read ends at ``end`` or later; each one after it takes at least its length's 8 bytes."""
        done = len(self.strings)
        left = self._count - done - 1
        mean = (self.position - self._start) // max(done, 1)
        message = f"{self._label} ends after {done} of its {self._count} strings"
        return GGUFTruncated(message, end + 8 * left, end + (mean + mean // 8 + 1) * left)  # later strings are often longer


def _decode_all(raw: list[bytes]) -> list[str]:
    joined = b"\0".join(raw)
    # NUL never continues a UTF-8 sequence, so decoding the joined bytes is decoding each string.
    if raw and joined.count(b"\0") == len(raw) - 1:
        return joined.decode("utf-8", "surrogateescape").split("\0")
    return [string.decode("utf-8", "surrogateescape") for string in raw]
