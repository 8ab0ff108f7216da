"""Text of a generation while it grows: pieces that never have to be taken back."""

from __future__ import annotations

import codecs

from bridge.tokenizer.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"


class StreamDetokenizer:
    """Turns ids into text one at a time; the pieces add up to `tok.decode(ids, special, clean_spaces=False)`.

    Text is held back while its end is U+FFFD, whether because a character is incomplete or because the model wrote
    one. `continues` says that the ids go on from an earlier text, so that a leading space is kept.
    """

    def __init__(self, tok: Tokenizer, special: bool = False, continues: bool = False) -> None:
        self._tok, self._special = tok, special
        self._strip_space = tok.begins_with_space and not continues
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._emitted: list[str] = []

    def push(self, token: int) -> str:
        """The text that has become stable with this token, often empty."""
        piece = self._tok.token_bytes(token, self._special)
        if self._strip_space:
            piece = piece.removeprefix(b" ")
            self._strip_space = False
        text = self._held + self._decoder.decode(piece)
        stable = text.rstrip(_REPLACEMENT)
        self._held = text[len(stable) :]
        return self._emit(stable)

    def flush(self) -> str:
        """What was held back, now final; an incomplete character is U+FFFD."""
        text = self._held + self._decoder.decode(b"", final=True)
        self._held = ""
        return self._emit(text)

    @property
    def text(self) -> str:
        """Everything so far, with the part that is held back."""
        return "".join(self._emitted) + self.pending

    @property
    def pending(self) -> str:
        """The part that is held back; an unfinished character shows as U+FFFD."""
        return self._held + self._decoder.getstate()[0].decode("utf-8", "replace")

    def _emit(self, text: str) -> str:
        if text:
            self._emitted.append(text)
        return text
