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


def read_strings(data: bytes, start: int, count: int, max_bytes: int, label: str) -> tuple[list[bytes], int]:
    """The ``count`` length-prefixed strings stored at ``start``, and the position behind them.

    Raises GGUFTruncated where ``data`` ends first and GGUFLimitExceeded for a string above ``max_bytes``; ``label``
    names the array in those messages.
    """
    strings: list[bytes] = []
    position, stride = start, _STRIDE
    while len(strings) < count:
        cut, position, all_checked = _cut_window(data, position, count - len(strings))
        strings += cut
        if cut and all_checked:
            stride = _STRIDE
            continue
        position = _walk(data, position, strings, min(count, len(strings) + stride), count, max_bytes, label)
        stride *= 2
    return strings, position


def _cut_window(data: bytes, position: int, count: int) -> tuple[list[bytes], int, bool]:
    """Up to ``count`` strings cut out of one window, the position behind them, and whether every cut checked out."""
    # pieces[0] is the low byte of the first length, every further piece a string and the low byte of the next length.
    pieces = data[position : position + _WINDOW].split(_SEPARATOR, count + 1)
    available = len(pieces) - 2  # the last piece ends where the window does, not where a string does
    if available < 1 or len(pieces[0]) != 1:
        return [], position, False
    if b"" in pieces:
        available = min(available, pieces.index(b"") - 1)
    sizes = list(map(len, pieces[1 : available + 1]))
    expected = list(map((1).__add__, map(_last, pieces[:available])))
    good = available
    if sizes != expected:
        good = next(i for i, (size, wanted) in enumerate(zip(sizes, expected)) if size != wanted)
    strings = [piece[:-1] for piece in pieces[1 : good + 1]]
    return strings, position + 7 * good + sum(sizes[:good]), good == len(pieces) - 2


def _walk(data: bytes, position: int, strings: list[bytes], upto: int, count: int, max_bytes: int, label: str) -> int:
    """Append strings read one by one until there are ``upto``; gives the position behind the last."""
    size = len(data)
    while len(strings) < upto:
        if position + 8 > size:
            raise _truncated(label, len(strings), count, position + 8 * (count - len(strings)))
        (length,) = U64.unpack_from(data, position)
        if length > max_bytes:
            raise GGUFLimitExceeded(
                f"string {len(strings)} of {label} claims {length} bytes; the limit is {max_bytes} (max_string_bytes)"
            )
        position += 8 + length
        if position > size:
            raise _truncated(label, len(strings), count, position + 8 * (count - len(strings) - 1))
        strings.append(data[position - length : position])
    return position


def _truncated(label: str, done: int, count: int, needed: int) -> GGUFTruncated:
    return GGUFTruncated(f"{label} ends after {done} of its {count} strings", needed)


def _decode_all(raw: list[bytes]) -> list[str]:
    joined = b"\0".join(raw)
    # NUL never continues a UTF-8 sequence, so decoding the joined bytes is decoding each string.
    if raw and joined.count(b"\0") == len(raw) - 1:
        return joined.decode("utf-8", "surrogateescape").split("\0")
    return [string.decode("utf-8", "surrogateescape") for string in raw]
