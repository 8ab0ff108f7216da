"""What can be wrong with a GGUF file, each kind with its own ``code``.

``needs_more_bytes`` is true only when the bytes given ended too early: then, and only then, can a longer prefix of the
same file parse.
"""

from __future__ import annotations

from bridge.errors import FormatError, UnsupportedError


class GGUFError(FormatError):
    """The bytes are not a GGUF file, or contradict themselves."""

    code = "INVALID_GGUF"
    needs_more_bytes = False


class GGUFTruncated(GGUFError):
    """The header goes on past the bytes given; it takes at least ``needed`` bytes from the start of the file.

    ``expected`` is a guess, no less than that, of what the part that is being read takes.
    """

    code = "TRUNCATED_GGUF"
    needs_more_bytes = True

    def __init__(self, message: str, needed: int, expected: int = 0):
        super().__init__(message)
        self.needed = needed
        self.expected = max(needed, expected)


class GGUFLimitExceeded(GGUFError):
    """A count or length is above one of the named limits in ``bridge.gguf.limits``."""

    code = "GGUF_LIMIT_EXCEEDED"


class GGUFUnsupported(GGUFError, UnsupportedError):
    """A valid file of a kind that is not read here: another version, byte order or tensor type; the message names it."""

    code = "UNSUPPORTED_GGUF"
