"""Token events: the pieces of a growing text as a page hears of them, one by one or gathered for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bridge.host.js_numbers import finite

MAX_FLUSH_MS = 200
MAX_FLUSH_CHARS = 1024


@dataclass(frozen=True)
class TokenEventOptions:
    """``flush_ms`` 0: one event per piece; ``flush_chars`` 0: no size limit; ``current_text``: what goes beside a piece."""

    as_text: bool = False
    current_text: str = "none"
    """"full": all text so far, with what may still change; "none": an empty string; "null": nothing at all."""
    flush_ms: int = 0
    flush_chars: int = 0

    @classmethod
    def from_page(cls, options: Mapping[str, Any], direct: bool) -> TokenEventOptions:
        """On the page's own thread nothing is gathered, and the current text is on unless it is switched off."""
        encoding, emit = options.get("tokenEventEncoding"), options.get("emitCurrentTextOnToken")
        as_text = isinstance(encoding, str) and encoding.lower() == "text"
        if direct:
            return cls(as_text, "null" if emit is False else "full")
        flush_ms = finite(options.get("tokenEventFlushMs")) or 0
        flush_chars = finite(options.get("tokenEventFlushChars")) or 0
        return cls(
            as_text,
            "full" if emit is True else "none",
            flush_ms=min(max(int(flush_ms), 0), MAX_FLUSH_MS),
            flush_chars=min(max(int(flush_chars), 1), MAX_FLUSH_CHARS) if flush_chars > 0 else 0,
        )


class TokenEvents:
    """Turns pieces into ``token`` events. ``text`` is all of them; ``close`` sends what is still gathered."""

    def __init__(self, post: Callable[[dict[str, Any]], None], options: TokenEventOptions) -> None:
        self._post, self._options = post, options
        self.text = ""
        self._pending = ""
        self._gathered: list[str] = []
        self._details: list[Any] = []
        self._n_chars = 0
        self._timer: asyncio.TimerHandle | None = None

    def push(self, piece: str, pending: str = "", detail: Any = None) -> None:
        """``pending`` follows the text and may still change: it shows in the current text only. ``detail`` goes with the
        next event, also where its token completes no text."""
        self._pending = pending
        if detail is not None:
            self._details.append(detail)
        if not piece:
            return
        self.text += piece
        self._gathered.append(piece)
        options = self._options
        self._n_chars += js_length(piece) if options.flush_chars else 0
        if not options.flush_ms or (options.flush_chars and self._n_chars >= options.flush_chars):
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(options.flush_ms / 1000, self._flush)

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._gathered:
            return
        piece = "".join(self._gathered)
        self._gathered.clear()
        self._n_chars = 0
        current = {"full": self.text + self._pending, "none": "", "null": None}[self._options.current_text]
        event: dict[str, Any] = {"pieceText": piece} if self._options.as_text else {"piece": list(piece.encode())}
        if self._details:
            event["details"], self._details = self._details, []
        self._post({**event, "currentText": current})


def js_length(text: str) -> int:
    """Length in UTF-16 units, as JavaScript counts."""
    return len(text) + sum(character > "\uffff" for character in text)
