"""A limit on how long a model may think: after so many tokens in a block the end of the block is forced.

The rules are those of llama.cpp's reasoning budget (``common/reasoning-budget.cpp``, revision 0c1e57098), except that a character
that is cut between tokens counts as complete when its last byte has come, and not only with a token that is whole by itself.
"""

from __future__ import annotations

import codecs
import math
from array import array
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Protocol

from bridge.errors import InputError
from bridge.sampling.options import integer

MAX_TOKENS = 2**31 - 1


@dataclass(frozen=True)
class ThinkingBudgetOptions:
    """``max_tokens`` per block between ``start_tag`` and ``end_tag``, then ``forced_message`` and the end tag.

    Raises InputError unless ``max_tokens`` is an integer from 0 to 2147483647 and the tags are not blank.
    """

    max_tokens: int
    start_tag: str
    end_tag: str
    forced_message: str = ""

    def __post_init__(self) -> None:
        if not 0 <= integer("max_tokens", self.max_tokens) <= MAX_TOKENS:
            raise InputError(f"max_tokens must be an integer from 0 to {MAX_TOKENS}; got {self.max_tokens}")
        for name in ("start_tag", "end_tag"):
            tag = getattr(self, name)
            if not isinstance(tag, str) or not tag.strip():
                raise InputError(f"{name} must be a non-empty string")
        if not isinstance(self.forced_message, str):
            raise InputError(f"forced_message must be a string; got {type(self.forced_message).__name__}")


class TokenizerLike(Protocol):
    """What a budget needs of a tokenizer."""

    def encode(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]: ...

    def token_bytes(self, token: int, special: bool = False) -> bytes: ...


class ThinkingBudget:
    """Follows one completion; ``apply`` is a vocabulary stage of its sampler.

    Tags are tokenized by themselves and matched as tokens. A block that ``prompt`` leaves open is counted from the first
    generated token on. ``in_block`` is true from the end of a start tag to the end of the next end tag. Raises InputError
    if a tag has no tokens.
    """

    def __init__(self, options: ThinkingBudgetOptions, tokenizer: TokenizerLike, prompt: Sequence[int] = ()) -> None:
        def tokens_of(text: str) -> list[int]:
            return tokenizer.encode(text, add_special=False, parse_special=True)

        start, end = tokens_of(options.start_tag), tokens_of(options.end_tag)
        self._forced = tokens_of(options.forced_message + options.end_tag)
        if not (start and end and self._forced):
            raise InputError("thinking budget tags produce no tokens for this vocabulary")
        self._max_tokens, self._tokenizer = options.max_tokens, tokenizer
        self._start, self._end = _TagMatcher(start), _TagMatcher(end)
        self._n_forced: int | None = None
        """How many tokens of the forced end have come; None while nothing is forced."""
        self.in_block = False
        if self._leaves_open(prompt):
            self._open()

    @property
    def forced(self) -> int | None:
        """The only token that may come next, if there is one."""
        return None if self._n_forced is None else self._forced[self._n_forced]

    def apply(self, scores: array) -> None:
        """Rule out all but the forced token, if one is forced; whatever forbade that token gives way."""
        token = self.forced
        if token is None:
            return
        if token >= len(scores):
            raise InputError(f"the thinking budget forces token {token}; the vocabulary has {len(scores)} tokens")
        score = scores[token]
        scores[:] = array("f", (-math.inf,)) * len(scores)
        scores[token] = score if score > -math.inf else 0.0

    def accept(self, token: int) -> None:
        """Count ``token`` as generated."""
        if not self.in_block:
            if self._start.advance(token):
                self._open()
        elif self._n_forced is not None:
            self._n_forced += 1
            if self._n_forced == len(self._forced):
                self._close()
        elif self._end.advance(token):
            self._close()
        else:
            self._remaining -= 1
            self._characters.decode(self._tokenizer.token_bytes(token, special=True))
            is_within_character = self._characters.getstate()[0]
            if self._remaining <= 0 and not is_within_character:
                self._n_forced = 0

    def clone(self) -> ThinkingBudget:
        """A budget at the same place that goes on by itself."""
        other = copy(self)
        other._start, other._end = copy(self._start), copy(self._end)
        if self.in_block:
            other._characters = _utf8_decoder()
            other._characters.setstate(self._characters.getstate())
        return other

    def _open(self) -> None:
        self.in_block = True
        self._remaining = self._max_tokens
        self._characters = _utf8_decoder()
        self._end.reset()
        if not self._remaining:
            self._n_forced = 0

    def _close(self) -> None:
        self.in_block, self._n_forced = False, None
        self._start.reset()

    def _leaves_open(self, prompt: Sequence[int]) -> bool:
        is_open = False
        for token in prompt:
            is_open = not self._end.advance(token) if is_open else self._start.advance(token)
        self._start.reset()
        return is_open


class _TagMatcher:
    """Finds a sequence of tokens, also where a first attempt overlaps the right one (Knuth, Morris and Pratt 1977)."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._fallback = [0] * len(tokens)  # how many tokens still match after a mismatch behind the n-th
        n_matched = 0
        for n in range(1, len(tokens)):
            n_matched = self._extended(n_matched, tokens[n])
            self._fallback[n] = n_matched
        self.reset()

    def reset(self) -> None:
        self._n_matched = 0

    def advance(self, token: int) -> bool:
        """Whether the sequence ends with this token; the next one is then looked for from the beginning."""
        self._n_matched = self._extended(self._n_matched, token)
        if self._n_matched < len(self._tokens):
            return False
        self.reset()
        return True

    def _extended(self, n_matched: int, token: int) -> int:
        while n_matched and self._tokens[n_matched] != token:
            n_matched = self._fallback[n_matched - 1]
        return n_matched + (self._tokens[n_matched] == token)


def _utf8_decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")
