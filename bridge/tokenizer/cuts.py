"""Cutting text into pieces: the steps a pre-tokenizer is made of.

A step gets the spans left by the one before and splits each into the matches of a pattern and what lies between them.
Patterns are matched against a view of the text of equal length, so spans carry over. Which steps a vocabulary uses is
said in `pretokenizers.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from bridge.tokenizer.characters import ClassView, SpaceView

Span = tuple[int, int]
Views = Callable[[str], str]

_TABLES = {"classes": ClassView(), "han": ClassView(han=True), "spaces": SpaceView()}


class Step(Protocol):
    def __call__(self, view: Views, spans: Iterable[Span]) -> list[Span]: ...


@dataclass(frozen=True)
class Cut:
    """Cuts out the matches of a pattern.

    `view` names what it is matched against: "classes" writes categories (see `ClassView`), "han" too, with Han letters
    apart, "spaces" keeps the text but for non-ASCII white space. `\\s` is ASCII white space in all three.
    """

    pattern: str
    view: str = "classes"

    def __call__(self, view: Views, spans: Iterable[Span]) -> list[Span]:
        text, matches = view(self.view), _compiled(self.pattern).finditer
        pieces: list[Span] = []
        add = pieces.append
        for start, end in spans:
            for match in matches(text, start, end):
                span = match.span()
                if span[0] > start:
                    add((start, span[0]))
                add(span)
                start = span[1]
            if start < end:
                add((start, end))
        return pieces


@dataclass(frozen=True)
class DigitGroups:
    """Cuts every run of digits into threes counted from its end, as numbers are written: 1 234 567.

    The run is cut from what follows it (`closed`) or, if its length is a multiple of three, from what precedes it.
    """

    digit: str
    closed: bool

    def __call__(self, view: Views, spans: Iterable[Span]) -> list[Span]:
        text, runs = view("classes"), _compiled(f"[{self.digit}]+").finditer
        pieces: list[Span] = []
        for start, end in spans:
            for run in runs(text, start, end):
                first, last = run.span()
                odd = (last - first) % 3
                stops = range(first + (odd or 3), last + 1, 3) if self.closed else range(first + odd, last, 3)
                for stop in stops:
                    if stop > start:
                        pieces.append((start, stop))
                        start = stop
            if start < end:
                pieces.append((start, end))
        return pieces


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def split(text: str, steps: Sequence[Step]) -> list[str]:
    """Pieces of `text` after all steps, in order; their concatenation is `text`."""
    views: dict[str, str] = {}

    def view(name: str) -> str:
        if text.isascii():
            return text
        if name not in views:
            views[name] = text.translate(_TABLES[name])
        return views[name]

    spans: list[Span] = [(0, len(text))] if text else []
    for step in steps:
        spans = step(view, spans)
    return [text[start:end] for start, end in spans]
