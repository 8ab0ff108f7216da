"""Sampling options: checked once, where they enter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real

from bridge.errors import InputError
from bridge.sampling.float32 import MAX_FLOAT32, float32

MANY_CANDIDATES = 1024  # beyond this plain Python takes longer per token than a small model


@dataclass(frozen=True)
class SamplingOptions:
    """The options of one completion, with the clamps of the page's API.

    ``temp`` below 0 is 0 (greedy), ``top_k`` below 0 is 0 (off), ``top_p`` at or below 0 or above 1 is 1 (off), ``penalty``
    at or below 0 is 1 (off); ``logit_bias`` maps token ids to what is added to their logits (``-inf`` bans one);
    ``seed`` is taken modulo 2**32 and ``None`` asks for a random one. Anything else out of range raises InputError.
    """

    temp: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.0
    penalty: float = 1.1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    seed: int | None = None

    def __post_init__(self):
        temp = number("temp", self.temp)
        top_k = integer("top_k", self.top_k)
        top_p = number("top_p", self.top_p)
        penalty = number("penalty", self.penalty)
        checked = {
            "temp": max(temp, 0.0),
            "top_k": max(top_k, 0),
            "top_p": top_p if 0 < top_p <= 1 else 1.0,
            "min_p": fraction("min_p", self.min_p),
            "penalty": penalty if penalty > 0 else 1.0,
            "presence_penalty": number("presence_penalty", self.presence_penalty),
            "frequency_penalty": number("frequency_penalty", self.frequency_penalty),
            "logit_bias": bias("logit_bias", self.logit_bias),
            "seed": None if self.seed is None else integer("seed", self.seed) % 2**32,
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def greedy(self) -> bool:
        """Whether these options always pick the most likely token."""
        return self.temp <= 0 or self.top_k == 1

    @property
    def wants_numpy(self) -> bool:
        """Whether so many candidates stay in play that a host should load numpy before sampling."""
        return not self.greedy and not 0 < self.top_k <= MANY_CANDIDATES


def number(name: str, value: float) -> float:
    """``value`` as the nearest float32, which is what llama.cpp computes with."""
    if not isinstance(value, Real) or isinstance(value, bool) or not abs(value) <= MAX_FLOAT32:
        raise InputError(f"{name} must be a finite number (float32); got {value!r}")
    return float32(value)


def fraction(name: str, value: float) -> float:
    """A number from 0 to 1."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value <= 1:
        raise InputError(f"{name} must be a number from 0 to 1; got {value!r}")
    return float32(value)


def integer(name: str, value: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InputError(f"{name} must be an integer; got {value!r}")
    return int(value)


def bias(name: str, value: Mapping[int, float] | Iterable[tuple[int, float]] | None) -> dict[int, float]:
    """``{token id: what is added to its logit}``; -inf is allowed, +inf and NaN are not."""
    try:
        pairs = dict(value or {}).items()
    except (TypeError, ValueError):
        raise InputError(f"{name} must map token ids to numbers; got {type(value).__name__}") from None
    checked = {}
    for token, amount in pairs:
        token = integer(f"a token id of {name}", token)
        if token < 0:
            raise InputError(f"a token id of {name} must not be negative; got {token}")
        checked[token] = -math.inf if amount == -math.inf else number(f"{name} of token {token}", amount)
    return checked
