"""Tokens with their probabilities: natural logarithms of a softmax over the raw logits, untouched by any sampler option."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from bridge.sampling.sampler import float32_copy


@dataclass(frozen=True)
class TokenScore:
    """``text`` is the token's text as raw bytes, perhaps part of a character; ``logprob`` is -inf for a zero probability."""

    token: int
    text: bytes
    logprob: float


def score_tokens(tokenizer: Any, logits: Any, tokens: Sequence[int], top_k: int) -> tuple[list[TokenScore], list[TokenScore]]:
    """Scores of ``tokens`` in their order, and of the ``top_k`` most probable ones, best first, equal ones by id.

    ``logits``: float32[n_vocab], any buffer or sequence. A logit that is no number leaves its probability undefined, and
    +inf those of all tokens: they are then -inf.
    """
    values = float32_copy(logits)
    total = log_sum_exp(values)

    def scored(token: int) -> TokenScore:
        logprob = values[token] - total
        text = tokenizer.token_bytes(token, special=True)
        return TokenScore(token, text, -math.inf if math.isnan(logprob) else logprob)

    best = nsmallest(top_k, range(len(values)), key=lambda token: (-_comparable(values[token]), token)) if top_k else []
    return [scored(token) for token in tokens], [scored(token) for token in best]


def log_sum_exp(values: Sequence[float]) -> float:
    """log(sum(exp(values))), NaN where a value that is NaN or +inf leaves it undefined."""
    largest = max(values)
    if not math.isfinite(largest):
        return math.nan
    return largest + math.log(math.fsum(math.exp(value - largest) for value in values))


def _comparable(logit: float) -> float:
    return -math.inf if math.isnan(logit) else logit
