"""Scores of the next token: natural logarithms of its probabilities over the raw logits, without generating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.errors import Cancelled, InputError
from bridge.runtime.cancel import CancelToken
from bridge.runtime.generate import Usage
from bridge.runtime.logprobs import TokenScore, score_tokens

if TYPE_CHECKING:
    from bridge.runtime.model import Model


@dataclass(frozen=True)
class NextTokenScores:
    """``candidates`` in the order they were asked for; ``top`` best first, equal ones by id."""

    candidates: list[TokenScore]
    top: list[TokenScore]
    prompt_tokens: int


async def score_next_token(model: Model, prompt: Sequence[int], candidates: Sequence[int] = (), top_k: int = 0, *,
                           reuse_prefix: bool = True, cancel: CancelToken | None = None) -> NextTokenScores:
    """Evaluate ``prompt`` and score the tokens ``candidates``, the ``top_k`` most probable ones, or both.

    ``reuse_prefix`` keeps what the context shares with the prompt. Raises InputError for a token or count outside the
    vocabulary and for a call that asks for nothing, ContextOverflow for a prompt that does not fit, and Cancelled.
    """
    _check(candidates, top_k, model.n_vocab)
    cancel = cancel or CancelToken()
    if not reuse_prefix:
        model.forget()
    logits = await model.prefill(prompt, cancel, Usage())
    if logits is None:
        raise Cancelled("the operation was cancelled")
    scored, best = score_tokens(model.tokenizer, logits, candidates, top_k)
    return NextTokenScores(scored, best, len(prompt))


def _check(candidates: Sequence[int], top_k: int, n_vocab: int) -> None:
    if not len(candidates) and top_k <= 0:
        raise InputError("nothing was asked for: pass candidates, a positive topK, or both")
    for i, token in enumerate(candidates):
        if not 0 <= token < n_vocab:
            raise InputError(f"candidates[{i}] is {token}, which is outside the vocabulary of {n_vocab} tokens")
    if not 0 <= top_k <= n_vocab:
        raise InputError(f"topK is {top_k}, which is outside the vocabulary of {n_vocab} tokens")
