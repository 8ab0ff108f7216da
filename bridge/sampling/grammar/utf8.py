"""Code points out of bytes that arrive in pieces: a token may end in the middle of a character."""

from __future__ import annotations

from typing import NamedTuple


class Pending(NamedTuple):
    """A character that has begun: the bits so far, how many bytes are to come, and the least value it may have.

    ``least`` is what makes a shorter encoding of the same character the only right one (RFC 3629, section 3).
    """

    value: int
    missing: int
    least: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and highest code point it can become; the lowest is above the highest if there is none."""
        shift = 6 * self.missing
        return max(self.value << shift, self.least), (self.value + 1 << shift) - 1


def decode(data: bytes, pending: Pending | None = None) -> tuple[list[int], Pending | None] | None:
    """The code points ``data`` completes and the character it leaves unfinished; None if it cannot be UTF-8.

    Lenient where llama.cpp is: surrogates and values above U+10FFFF are code points like others.
    """
    code_points = []
    value, missing, least = pending or (0, 0, 0)
    for byte in data:
        if missing:
            if byte & 0xC0 != 0x80:
                return None
            value, missing = value << 6 | byte & 0x3F, missing - 1
        elif byte < 0x80:
            value, least = byte, 0
        elif byte < 0xC0:
            return None
        elif byte < 0xE0:
            value, missing, least = byte & 0x1F, 1, 0x80
        elif byte < 0xF0:
            value, missing, least = byte & 0x0F, 2, 0x800
        else:
            value, missing, least = byte & 0x0F, 3, 0x10000
        if (value + 1 << 6 * missing) <= least:
            return None  # only an overlong encoding could follow
        if not missing:
            code_points.append(value)
    return code_points, Pending(value, missing, least) if missing else None
