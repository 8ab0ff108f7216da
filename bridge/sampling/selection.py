"""What a sampler needs of a token's logits, and what a device gives back that looks through the vocabulary itself.

With the best few tokens a sampler comes to the same result as with all of them, so a vocabulary need not be copied
for every token. Bias and penalties change a few logits, however: those tokens are left out of the best and given
beside them.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DrawRule:
    """How a token is drawn from the best ones (see bridge.sampling.options); ``temp`` 0 takes the best."""

    temp: float = 0.0
    top_p: float = 1.0
    min_p: float = 0.0
    penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    @property
    def penalises(self) -> bool:
        """Whether a token that is drawn changes the logits after it."""
        return self.penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0


@dataclass(frozen=True)
class Selection:
    """The ``k`` largest logits, largest first and equal ones by id, but for the tokens ``also``, and the logits of
    those.

    The rest is for devices that draw the token and go on with it: how often each of ``also`` is in the window of the
    penalties, what is added to its logit, and the random number.
    """

    k: int
    also: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    biases: tuple[float, ...] = ()
    uniform: float = 0.0
    rule: DrawRule = DrawRule()


class Selected:
    """Logits of ``n_vocab`` tokens of which a device has selected some; to a Sampler as good as all of them.

    ``drawn`` is the token that the device went on with, if it did.
    """

    def __init__(self, n_vocab: int, ids: Sequence[int], values: array, others: Mapping[int, float],
                 drawn: int | None = None) -> None:
        self._n_vocab, self._ids, self._values, self._others, self.drawn = n_vocab, ids, values, others, drawn

    def __len__(self) -> int:
        return self._n_vocab

    def best_token(self) -> int | None:
        """The first of the largest logits; None where others were asked for beside them."""
        return None if self._others else self._ids[0]

    def best_tokens(self, k: int, also: Sequence[int]) -> tuple[Sequence[int], array, list[float]] | None:
        """As many of the best and these others, or None where something else was selected."""
        if k > len(self._ids) or set(also) != self._others.keys():
            return None
        return self._ids[:k], self._values[:k], [self._others[token] for token in also]
