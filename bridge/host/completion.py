"""One completion: the prompt to tokens, the tokens to events, the counts to a usage object."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bridge.errors import BridgeError
from bridge.host.engine import Engine
from bridge.host.options import CompletionRequest
from bridge.host.token_events import TokenEvents
from bridge.runtime import CancelToken, Model, Usage
from bridge.runtime.logprobs import TokenScore
from bridge.sampling.grammar import Grammar, GrammarError, GrammarRejection

PostEvent = Callable[[str, Mapping[str, Any]], None]

TOKENS_PER_YIELD = 4
"""After so many tokens the thread's other work gets its turn: messages, timers, painting."""


async def complete(model: Model, engine: Engine, prompt: str, request: CompletionRequest, post_event: PostEvent,
                   cancel: CancelToken) -> str:
    """Generate and return the whole text; posts ``prefill`` and ``token`` events and one ``usage`` event at the end.

    Cancellation ends it normally, with what there is. Errors say whether generation had begun.
    """
    if request.generate.sampling.wants_numpy:
        await engine.load_package("numpy")
    events = TokenEvents(lambda payload: post_event("token", payload), request.events)
    n_tokens = 0

    def prefilled(evaluated: int, total: int) -> None:
        if evaluated < total:  # the first token is the sign that all of it is there
            post_event("prefill", {"evaluated": evaluated, "total": total})

    try:
        options = replace(request.generate, grammar=grammar_for(model, request.grammar))
        tokens = model.tokenizer.encode(prompt, add_special=True, parse_special=True)
        async for piece in model.generate(tokens, options, cancel=cancel, on_prefill=prefilled):
            n_tokens += 1
            events.push(piece.text, piece.pending, piece.scores and token_detail(*piece.scores))
            if n_tokens % TOKENS_PER_YIELD == 0:
                await asyncio.sleep(0)
    except BridgeError as error:
        has_begun = n_tokens > 0 or isinstance(error, GrammarRejection)
        failure = BridgeError(f"{'Generation step failed' if has_begun else 'Failed to start generation'}: {error}")
        failure.code = error.code
        raise failure from error
    finally:
        events.close()
    post_event("usage", usage_for_page(model.last_usage))
    return events.text


def grammar_for(model: Model, text: str) -> Grammar | None:
    """The grammar in ``text``, read before the prompt touches the context; the words of the error are the protocol's."""
    if not text:
        return None
    try:
        return Grammar.for_tokenizer(text, model.tokenizer)
    except GrammarError as error:
        failure = BridgeError(f"Failed to initialize sampler chain (invalid grammar): {error}")
        failure.code = error.code
        raise failure from error


def token_detail(own: TokenScore, top: list[TokenScore]) -> dict[str, Any]:
    """What ``nProbs`` tells of one generated token. Bytes as numbers: a detail is part of an event, which has no buffers."""
    return {**_score(own), "top": [_score(score) for score in top]}


def _score(score: TokenScore) -> dict[str, Any]:
    return {"token": score.token, "bytes": list(score.text), "logprob": score.logprob if math.isfinite(score.logprob) else None}


def usage_for_page(usage: Usage) -> dict[str, Any]:
    """The documented fields, and beyond them the two parts of the duration: ``promptMs`` and ``decodeMs``."""
    return {
        "promptTokens": usage.prompt_tokens,
        "cachedPromptTokens": usage.cached_prompt_tokens,
        "completionTokens": usage.completion_tokens,
        "timeToFirstTokenMs": usage.time_to_first_token_ms,
        "durationMs": usage.duration_ms,
        "finishReason": usage.finish_reason,
        "promptMs": usage.prompt_ms,
        "decodeMs": usage.decode_ms,
    }
