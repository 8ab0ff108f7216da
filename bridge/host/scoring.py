"""Next-token scores as a page asks for them and gets them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bridge.errors import BridgeError, Cancelled, InputError
from bridge.host.js_numbers import finite
from bridge.runtime import CancelToken, Model
from bridge.runtime.logprobs import TokenScore
from bridge.runtime.scoring import score_next_token


async def scores_for_page(model: Model, prompt: Any, options: Mapping[str, Any], cancel: CancelToken) -> dict[str, Any]:
    """The documented answer of ``scoreNextToken``; a ``logprob`` of None stands for -Infinity."""
    try:
        if not isinstance(prompt, str):
            raise InputError(f"prompt must be a string, got {type(prompt).__name__}")
        candidates = [_integer(f"candidates[{i}]", token) for i, token in enumerate(options.get("candidates") or ())]
        top_k = _integer("topK", options.get("topK") or 0)
        tokens = model.tokenizer.encode(prompt, add_special=True, parse_special=True)
        scores = await score_next_token(model, tokens, candidates, top_k, cancel=cancel,
                                        reuse_prefix=options.get("reusePromptPrefix") is not False)
    except Cancelled:
        raise
    except BridgeError as error:
        failure = BridgeError(f"Next-token scoring failed: {error}")
        failure.code = error.code
        raise failure from error
    return {
        "candidates": [score_for_page(score) for score in scores.candidates],
        "top": [score_for_page(score) for score in scores.top],
        "promptTokens": scores.prompt_tokens,
    }


def score_for_page(score: TokenScore) -> dict[str, Any]:
    return {"token": score.token, "bytes": score.text, "logprob": score.logprob if math.isfinite(score.logprob) else None}


def _integer(name: str, value: Any) -> int:
    number = finite(value)
    if number is None or number != int(number):
        raise InputError(f"{name} is not an integer")
    return int(number)
