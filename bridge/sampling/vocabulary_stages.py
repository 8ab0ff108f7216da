"""Stages that change the logits of the whole vocabulary in place: logit bias and penalties.

Each touches few tokens, so plain Python on an ``array("f")`` is fast, and storing into the array rounds to float32.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from bridge.errors import InputError
from bridge.sampling.float32 import float32

VocabularyStage = Callable[[array], None]


def logit_bias(amounts: Mapping[int, float]) -> VocabularyStage:
    """Add ``amounts[token]`` to the token's logit."""

    def apply(scores: array) -> None:
        for token, amount in amounts.items():
            if token >= len(scores):
                raise InputError(f"logit_bias names token {token}; the vocabulary has {len(scores)} tokens")
            scores[token] += amount

    return apply


class SparseScores(dict):
    """The logits of some tokens, for stages that look at no others; ``n_vocab`` is what they take the length for."""

    def __init__(self, n_vocab: int, scores: Mapping[int, float]):
        super().__init__(scores)
        self._n_vocab = n_vocab

    def __len__(self) -> int:
        return self._n_vocab

    def __setitem__(self, token: int, score: float) -> None:
        super().__setitem__(token, float32(score))


class Penalties:
    """Lower the logits of the tokens among the last ``window`` accepted ones.

    ``repeat`` divides a positive logit and multiplies the others (Keskar et al. 2019, with llama.cpp's change for negative
    logits); ``frequency`` is then subtracted once per occurrence and ``presence`` once.
    """

    def __init__(self, repeat: float, presence: float, frequency: float, window: int):
        self.repeat, self.presence, self.frequency = repeat, presence, frequency
        self._last: deque[int] = deque(maxlen=window)

    @property
    def active(self) -> bool:
        return self.repeat != 1 or self.presence != 0 or self.frequency != 0

    def tokens(self) -> set[int]:
        """Those whose logits ``apply`` changes."""
        return set(self._last)

    def counts(self, after: Sequence[int] = (), further: int = 0) -> Counter[int]:
        """How often tokens will be in the window when those of ``after`` have been accepted and ``further`` more that are not
        known yet."""
        known = [*self._last, *after]
        return Counter(known[max(0, len(known) + further - self._last.maxlen):])

    def accept(self, token: int) -> None:
        self._last.append(token)

    def clear(self) -> None:
        self._last.clear()

    def apply(self, scores: array) -> None:
        for token, count in self.counts().items():
            if not 0 <= token < len(scores):
                raise InputError(f"token {token} was accepted; the vocabulary has {len(scores)} tokens")
            scores[token] = scores[token] / self.repeat if scores[token] > 0 else scores[token] * self.repeat
            scores[token] -= float32(float32(count * self.frequency) + self.presence)
