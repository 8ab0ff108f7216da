"""Candidate tokens in numpy arrays: a whole vocabulary (up to 262144 tokens) in a millisecond or two.

The operations of ``candidate_list``, which states what each does, with the same results: exponentials are taken in
float64 and rounded, running float32 sums go through ``cumsum``, which adds one value after the other. This module imports
numpy, so it is imported only where numpy is wanted.
"""

from __future__ import annotations

from array import array

import numpy as np

from bridge.sampling.candidate_list import check_top, min_p_logit
from bridge.sampling.float32 import float32

BLOCK = 64
NUCLEUS_SIZES = (256, 4096)  # candidates that top_p tries before all


class CandidateArray:
    """Token ids int64[n] and logits float32[n]; ``top`` is the largest logit, ``is_sorted``: the best comes first."""

    __slots__ = ("ids", "is_sorted", "logits", "top")

    def __init__(self, ids: np.ndarray, logits: np.ndarray, top: float, is_sorted: bool):
        self.ids, self.logits, self.top, self.is_sorted = ids, logits, top, is_sorted

    @classmethod
    def of_vocabulary(cls, scores: array) -> CandidateArray:
        logits = np.frombuffer(scores, np.float32)
        top = float(logits.max()) if logits.size else None  # NaN if there is one anywhere
        return cls(np.arange(logits.size), logits, check_top(top, has_nan=top != top), is_sorted=False)

    def best(self) -> int:
        return int(self.ids[self.logits.argmax()])  # argmax gives the first of several

    def top_k(self, k: int) -> CandidateArray:
        n = self.ids.size
        if self.is_sorted or k >= n:
            return self.best_first().first(k)
        n_blocks = n // BLOCK
        if k <= n_blocks:
            # At least k values reach the k-th largest block maximum, so nothing below it can be among the k best.
            maxima = self.logits[: n_blocks * BLOCK].reshape(n_blocks, BLOCK).max(axis=1)
            least = np.partition(maxima, n_blocks - k)[n_blocks - k]
            order = np.flatnonzero(self.logits >= least)
            return self._take(order, is_sorted=False).best_first().first(k)
        return self.best_first().first(k)

    def top_p(self, p: float) -> CandidateArray:
        total = np.cumsum(self._weights())[-1]
        # A nucleus is usually small, and sorting a whole vocabulary takes ten times as long as finding its best few.
        for size in (*NUCLEUS_SIZES, self.ids.size):
            best = self.top_k(size)
            running = np.cumsum(best._weights() / total)
            if running[-1] >= np.float32(p):
                break
        return best.first(int(np.searchsorted(running, np.float32(p))) + 1)

    def min_p(self, p: float) -> CandidateArray:
        return self._take(np.flatnonzero(self.logits >= np.float32(min_p_logit(self.top, p))), self.is_sorted)

    def divide(self, temp: float) -> CandidateArray:
        top = float32(self.top / temp)
        if not np.isfinite(top):
            return CandidateArray(np.array([self.best()]), np.zeros(1, np.float32), 0.0, is_sorted=True)
        with np.errstate(over="ignore"):  # very unlikely candidates may become -infinity
            return CandidateArray(self.ids, self.logits / np.float32(temp), top, self.is_sorted)

    def probabilities(self) -> np.ndarray:
        weights = self._weights().astype(np.float64)
        return weights / weights.sum()

    def draw(self, uniform: float) -> int:
        running = np.cumsum(self._weights(), dtype=np.float64)
        return int(self.ids[np.searchsorted(running, running[-1] * uniform)])

    def best_first(self) -> CandidateArray:
        if self.is_sorted:
            return self
        return self._take(np.argsort(-self.logits, kind="stable"), is_sorted=True)

    def first(self, n: int) -> CandidateArray:
        return CandidateArray(self.ids[:n], self.logits[:n], self.top, self.is_sorted)

    def to_lists(self) -> tuple[list[int], list[float]]:
        return self.ids.tolist(), self.probabilities().tolist()

    def _take(self, order: np.ndarray, is_sorted: bool) -> CandidateArray:
        return CandidateArray(self.ids[order], self.logits[order], self.top, is_sorted)

    def _weights(self) -> np.ndarray:
        return np.exp(self.logits - np.float32(self.top), dtype=np.float64).astype(np.float32)
