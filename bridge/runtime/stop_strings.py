"""Texts at which a generation ends: what may be the beginning of one is held back until it is decided."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.errors import InputError


class StopStrings:
    """Filters a growing text. ``held`` is the end of it that may yet turn out to begin a stop string."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        for stop in stops:
            if not isinstance(stop, str) or not stop:
                raise InputError("a stop string must be a text that is not empty")
        self._stops = tuple(stops)
        self.held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """The text that is decided now, and whether a stop string ends it; the stop string itself is dropped."""
        if not self._stops:
            return text, False
        text = self.held + text
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.held = ""
            return text[:min(found)], True
        keep = max(_overlap(text, stop) for stop in self._stops)
        self.held = text[len(text) - keep:]
        return text[:len(text) - keep], False

    def flush(self) -> str:
        """What was held back: no more text will come."""
        held, self.held = self.held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that begins ``stop``."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
