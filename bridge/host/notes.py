"""Runtime notes: short words in the metadata on what the engine decided or had to give up."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_TOKEN = 120


class RuntimeNotes:
    """Notes in the order they were first made, each once."""

    def __init__(self) -> None:
        self._notes: dict[str, None] = {}

    def add(self, note: str, detail: object = None) -> None:
        self._notes[note if detail is None else f"{note}:{note_token(detail)}"] = None

    def extend(self, notes: Iterable[str]) -> None:
        for note in notes:
            self.add(note)

    def clear(self) -> None:
        self._notes.clear()

    def joined(self) -> str:
        return ";".join(self._notes)


def note_token(value: object) -> str:
    """A value as part of a note: no separators, nothing but plain characters, at most 120 of them."""
    spaced = re.sub(r"[\s;=]", "_", str(value))
    return re.sub(r"[^A-Za-z0-9._:-]", "", spaced)[:MAX_TOKEN]
