"""What a tokenizer needs to know about code points: categories, case, accents, Han, and lenient UTF-8.

The target is Unicode 15.1, the version of llama.cpp's tables. CPython 3.11 and 3.12 ship 14.0 and 15.0, so the code
points assigned since then are listed here; nothing else differs between these versions for our purposes.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# Assigned after Unicode 14.0, by major category (from the Unicode Character Database, DerivedAge 15.0 and 15.1).
_ASSIGNED_SINCE_14 = {
    "L": "1123F-11240 11F02 11F04-11F10 11F12-11F33 1342F 13441-13446 1B132 1B155 1DF25-1DF2A 1E030-1E06D 1E4D0-1E4EB "
    "2B739 2EBF0-2EE5D 31350-323AF",
    "M": "CF3 ECE 10EFD-10EFF 11241 11F00-11F01 11F03 11F34-11F3A 11F3E-11F42 13440 13447-13455 1E08F 1E4EC-1E4EF",
    "N": "11F50-11F59 1D2C0-1D2D3 1E4F0-1E4F9",
    "P": "11B00-11B09 11F43-11F4F",
    "S": "2FFC-2FFF 31EF 1F6DC 1F774-1F776 1F77B-1F77F 1F7D9 1FA75-1FA77 1FA87-1FA88 1FAAD-1FAAF 1FABB-1FABD 1FABF "
    "1FACE-1FACF 1FADA-1FADB 1FAE8 1FAF7-1FAF8",
    "C": "13439-1343F",
}

# The blocks llama.cpp counts as Han (CJK ideographs, extensions A to F, compatibility), assigned or not.
_HAN = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2EBEF),
    (0x2F800, 0x2FA1F),
)

_WHITE_SPACE = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
_REPLACEMENT = "\ufffd"


@cache
def _late_arrivals() -> list[tuple[int, int, str]]:
    """Ranges of `_ASSIGNED_SINCE_14` as (first, last, category)."""
    ranges = []
    for letter, text in _ASSIGNED_SINCE_14.items():
        for item in text.split():
            first, _, last = item.partition("-")
            ranges.append((int(first, 16), int(last or first, 16), letter))
    return ranges


def category(code_point: int) -> str:
    """Major category of a code point in Unicode 15.1: one of L N P S M Z C, or "" if it is unassigned."""
    name = unicodedata.category(chr(code_point))
    if name != "Cn":
        return name[0]
    for first, last, letter in _late_arrivals():
        if first <= code_point <= last:
            return letter
    return ""


def split_at_whitespace(text: str) -> list[str]:
    """Runs of characters that are not Unicode White_Space (which leaves out U+001C to U+001F, unlike `str.split`)."""
    return [run for run in _WHITE_SPACE.split(text) if run]


def is_han(code_point: int) -> bool:
    return any(first <= code_point <= last for first, last in _HAN)


def lower(char: str) -> str:
    """Simple (one to one) lower case; of the longer mappings, only U+0130 exists, the first code point is kept."""
    return char.lower()[0]


def without_accent(char: str) -> str:
    """First code point of the canonical decomposition: the base letter of an accented one."""
    return unicodedata.normalize("NFD", char)[0]


class ClassView(dict[int, str]):
    """A `str.translate` table that writes each code point as the representative of its category.

    Patterns over `\\p{L}` and its kind then become short ASCII classes plus one representative each, so no pattern
    holds thousands of ranges and nothing has to be compiled for the whole of Unicode. ASCII stands for itself;
    the table fills as code points are met. The length of the text does not change.
    """

    LETTER, NUMBER, MARK, PUNCTUATION, SYMBOL, OTHER = "\xd2\xd1\xd4\xd3\xd5\xd0"
    HAN, HAN_UNASSIGNED = "\xd6\xd7"
    SPACE = "\v"

    _BY_CATEGORY = {"L": LETTER, "N": NUMBER, "M": MARK, "P": PUNCTUATION, "S": SYMBOL}

    def __init__(self, *, han: bool = False) -> None:
        super().__init__()
        self._han = han

    def __missing__(self, code_point: int) -> str:
        char = chr(code_point)
        if code_point < 128:
            stand_in = char
        elif char.isspace():
            stand_in = self.SPACE
        else:
            stand_in = self._BY_CATEGORY.get(category(code_point), self.OTHER)
            if self._han and is_han(code_point):
                stand_in = self.HAN if stand_in == self.LETTER else self.HAN_UNASSIGNED
        self[code_point] = stand_in
        return stand_in


class SpaceView(dict[int, str]):
    """A `str.translate` table that writes every non-ASCII white space as a vertical tab and keeps the rest."""

    def __missing__(self, code_point: int) -> str:
        char = chr(code_point)
        self[code_point] = ClassView.SPACE if code_point >= 128 and char.isspace() else char
        return self[code_point]


def from_bytes(data: bytes) -> str:
    """Text of any bytes: those that are not UTF-8 travel as lone surrogates (`surrogateescape`)."""
    return data.decode("utf-8", "surrogateescape")


def to_bytes(text: str) -> bytes:
    """The bytes that `from_bytes` made `text` of."""
    return text.encode("utf-8", "surrogateescape")


def has_raw_bytes(text: str) -> bool:
    """Whether `text` holds bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def sequence_length(data: bytes, at: int) -> int:
    """Bytes of the UTF-8 sequence that starts at `at`, whatever it encodes; 0 if none does."""
    lead = data[at]
    length = lead_length(lead) if not 0x80 <= lead < 0xC0 and lead < 0xF8 else 0
    tail = data[at + 1 : at + length]
    return length if len(tail) == max(length - 1, 0) and all(byte & 0xC0 == 0x80 for byte in tail) else 0


def lead_length(byte: int) -> int:
    """Bytes of the UTF-8 sequence that a lead byte announces; 1 for a continuation byte."""
    return (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4)[byte >> 4]


def decode_leniently(data: bytes) -> str:
    """Text of bytes that are not valid UTF-8, read as llama.cpp reads them.

    A lead byte followed by enough continuation bytes is accepted whatever it encodes (overlong forms and surrogates
    too); every other byte becomes one U+FFFD. Code points above U+10FFFF, on which llama.cpp stops, become one U+FFFD.
    """
    chars: list[str] = []
    at = 0
    while at < len(data):
        length = sequence_length(data, at)
        if not length:
            chars.append(_REPLACEMENT)
            at += 1
            continue
        value = data[at] if length == 1 else data[at] & (0x7F >> length)
        for byte in data[at + 1 : at + length]:
            value = value << 6 | byte & 0x3F
        chars.append(chr(value) if value <= 0x10FFFF else _REPLACEMENT)
        at += length
    return "".join(chars)
