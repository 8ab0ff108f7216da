"""Words: the pieces of text that are encoded on their own, and so can be remembered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import itemgetter

SPACE_MARK = "\u2581"  # how SentencePiece writes a space

_MAX_CACHED = 1 << 15
_MAX_CACHED_LENGTH = 64  # longer words rarely repeat


class WordCache(dict[str, list[int]]):
    """Ids of words; encodes a word when it is first asked for."""

    def __init__(self, encode_word: Callable[[str], list[int]]) -> None:
        super().__init__()
        self._encode_word = encode_word

    def __missing__(self, word: str) -> list[int]:
        ids = self._encode_word(word)
        if len(word) <= _MAX_CACHED_LENGTH:
            if len(self) >= _MAX_CACHED:
                self.clear()
            self[word] = ids
        return ids


def space_mark_boundary(merged_texts: Iterable[str]) -> re.Pattern[str]:
    """Where text that writes spaces as U+2581 can be cut before such a mark without changing its encoding.

    Merging crosses a cut only if some merged text has the character before the cut followed by the mark; so cuts are
    safe everywhere but after another mark and after those characters. Short words can be cached, whole texts cannot.
    `merged_texts` are tokens or merges; in a merge a space stands between the two sides.
    """
    separator = "\ud800"  # no text contains a surrogate
    before_marks = separator.join(merged_texts).split(SPACE_MARK)[:-1]
    endings = set(map(itemgetter(slice(-2, None)), before_marks))
    crossed = {ending.rstrip(" ")[-1:] for ending in endings} - {"", separator}
    return re.compile(f"(?={SPACE_MARK})(?<![{SPACE_MARK}{re.escape(''.join(sorted(crossed)))}])")
