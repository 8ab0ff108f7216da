"""Candidate tokens in plain Python: no numpy to load, and fast for the few hundred that remain after top-k.

``candidate_array`` holds the same operations on numpy arrays, for whole vocabularies; both give the same results.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise

from bridge.errors import InputError
from bridge.sampling.float32 import float32

BLOCK = 128  # tokens whose maximum is taken at once: large enough that it costs little, small enough to look through


class CandidateList:
    """Token ids and their float32 logits; ``top`` is the largest logit, ``is_sorted`` says that the best comes first.

    A whole vocabulary also has ``block_tops``, the maxima of each ``BLOCK`` tokens, by which most of it is passed over.
    """

    __slots__ = ("block_tops", "ids", "is_sorted", "logits", "top")

    def __init__(self, ids: Sequence[int], logits: Sequence[float], top: float, is_sorted: bool):
        self.ids, self.logits, self.top, self.is_sorted = ids, logits, top, is_sorted
        self.block_tops: list[float] | None = None

    @classmethod
    def of_sorted(cls, ids: Sequence[int], scores: array) -> CandidateList:
        """Candidates sorted already, best first; raises InputError if they are not, or no token can be chosen."""
        if not 0 < len(ids) == len(scores):
            raise InputError(
                f"candidates need one logit per id and at least one id; got {len(ids)} ids, {len(scores)} logits"
            )
        top = check_top(scores[0], has_nan=math.isnan(sum(scores)))
        if any(before < after for before, after in pairwise(scores)):
            raise InputError("candidates must be sorted by logit, the best first")
        return cls(list(ids), scores, top, is_sorted=True)

    @classmethod
    def of_vocabulary(cls, scores: array) -> CandidateList:
        """Every token, in the order of ids, from float32[n_vocab]; raises InputError if no token can be chosen."""
        n_vocab = len(scores)
        block_tops = [max(scores[start : start + BLOCK]) for start in range(0, n_vocab, BLOCK)]
        top = check_top(max(block_tops, default=None), has_nan=math.isnan(sum(scores)))
        found = cls(range(n_vocab), scores, top, is_sorted=False)
        found.block_tops = block_tops
        return found

    def best(self) -> int:
        """The id with the largest logit, the lowest such id if there are several."""
        start = self.block_tops.index(self.top) * BLOCK if self.block_tops else 0
        return self.ids[self.logits.index(self.top, start)]

    def top_k(self, k: int) -> CandidateList:
        """The k best, best first; equal logits in the order of ids."""
        if self.block_tops is None or not k <= len(self.block_tops):
            return self.best_first().first(k)
        # At least k values reach the k-th largest block maximum, so nothing below it can be among the k best.
        found = self._take(self._reaching(heapq.nlargest(k, self.block_tops)[-1]), is_sorted=False)
        return found.best_first().first(k)

    def top_p(self, p: float) -> CandidateList:
        """The fewest best candidates whose probabilities reach ``p``, best first."""
        weights = self._weights()
        total = _float32_sum(weights)
        best = self.best_first()
        if not self.is_sorted:
            weights = best._weights()
        running = 0.0
        for n, weight in enumerate(weights, start=1):
            running = float32(running + float32(weight / total))
            if running >= p:
                return best.first(n)
        return best

    def min_p(self, p: float) -> CandidateList:
        """The candidates at least ``p`` times as likely as the best, in their present order."""
        return self._take(self._reaching(min_p_logit(self.top, p)), self.is_sorted)

    def divide(self, temp: float) -> CandidateList:
        """Every logit divided by a temperature above 0; where that overflows float32, only the best candidate."""
        logits = array("f", (logit / temp for logit in self.logits)).tolist()
        top = float32(self.top / temp)
        if math.isfinite(top):
            return CandidateList(self.ids, logits, top, self.is_sorted)
        return CandidateList([self.best()], [0.0], 0.0, is_sorted=True)

    def probabilities(self) -> list[float]:
        """Softmax over these candidates, in their present order."""
        weights = self._weights()
        total = sum(weights)
        return [weight / total for weight in weights]

    def draw(self, uniform: float) -> int:
        """The id at which the running sum of probabilities reaches ``uniform``, in the present order."""
        running = list(accumulate(self._weights()))
        target = running[-1] * uniform
        return self.ids[next(i for i, total in enumerate(running) if total >= target)]

    def best_first(self) -> CandidateList:
        if self.is_sorted:
            return self
        order = sorted(
            range(len(self.ids)), key=self.logits.__getitem__, reverse=True
        )  # stable: equal ones keep their order
        return self._take(order, is_sorted=True)

    def first(self, n: int) -> CandidateList:
        return CandidateList(self.ids[:n], self.logits[:n], self.top, self.is_sorted)

    def to_lists(self) -> tuple[list[int], list[float]]:
        """Ids and probabilities."""
        return list(self.ids), self.probabilities()

    def _reaching(self, least: float) -> list[int]:
        """Positions of the logits that are at least ``least``, ascending."""
        logits = self.logits
        if self.block_tops is None:
            return [i for i, logit in enumerate(logits) if logit >= least]
        starts = [n * BLOCK for n, top in enumerate(self.block_tops) if top >= least]
        return [i for start in starts for i, logit in enumerate(logits[start : start + BLOCK], start) if logit >= least]

    def _take(self, order: list[int], is_sorted: bool) -> CandidateList:
        return CandidateList([self.ids[i] for i in order], [self.logits[i] for i in order], self.top, is_sorted)

    def _weights(self) -> array:
        """exp(logit - top), rounded to float32 at each step."""
        shifted = array("f", (logit - self.top for logit in self.logits))
        return array("f", map(math.exp, shifted))


def check_top(top: float | None, has_nan: bool) -> float:
    """The largest logit (``None``: there are none) if it can be sampled from; otherwise InputError saying why."""
    if top is None:
        raise InputError("there are no logits to sample from")
    if has_nan:
        raise InputError("the logits hold NaN: the model's output is not usable")
    if top == math.inf:
        raise InputError("the logits hold +infinity: the model's output is not usable")
    if top == -math.inf:
        raise InputError("every token has been ruled out: all logits are -infinity")
    return top


def min_p_logit(top: float, p: float) -> float:
    """The least logit whose probability is at least ``p`` times that of ``top``."""
    return float32(top + float32(math.log(p)))


def _float32_sum(values: array) -> float:
    total = array("f", (0.0,))
    for value in values:
        total[0] += value
    return total[0]
