"""Generation: prompt in, tokens out, one at a time, until an end token, a limit or a cancellation."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bridge.errors import Cancelled
from bridge.runtime.cancel import CancelToken
from bridge.runtime.decode_ahead import Decoder
from bridge.runtime.logprobs import TokenScore, score_tokens
from bridge.runtime.stop_strings import StopStrings
from bridge.sampling import Sampler, SamplingOptions
from bridge.sampling.grammar import Grammar, GrammarConstraint
from bridge.sampling.thinking_budget import ThinkingBudget, ThinkingBudgetOptions
from bridge.sampling.token_picker import TokenPicker
from bridge.tokenizer import StreamDetokenizer

if TYPE_CHECKING:
    from bridge.runtime.model import Model

Prefilled = Callable[[int, int], None]
"""Told after every micro-batch of a prompt: tokens of it that are in the context, and all of them."""

NOTE_CONTEXT_LIMIT = "generation_stopped_context_limit"


@dataclass(frozen=True)
class GenerateOptions:
    """``n_predict``: most tokens to generate; ``ignore_eos``: keep going after an end-of-generation token; ``stop``: texts
    at which the generation ends, without them; ``n_probs``: score each token and so many of the most probable ones;
    ``grammar``: what the text must follow, made for the model's tokenizer; ``thinking_budget``: how long a block of thoughts
    may be."""

    n_predict: int = 256
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    n_probs: int = 0
    grammar: Grammar | None = None
    thinking_budget: ThinkingBudgetOptions | None = None


@dataclass(frozen=True)
class Piece:
    """One generated token and the stable text it completed, "" when it only begins a character.

    ``pending`` is what follows the stable text and may still change; ``scores``, where they were asked for, are the
    token's own and those of the most probable ones, best first.
    """

    token: int
    text: str
    pending: str = ""
    scores: tuple[TokenScore, list[TokenScore]] | None = None


@dataclass
class Usage:
    """Counts and times in milliseconds; ``finish_reason`` is "stop", "length" or "cancelled"."""

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    time_to_first_token_ms: float | None = None
    duration_ms: float = 0.0
    prompt_ms: float = 0.0
    decode_ms: float = 0.0
    finish_reason: str = "length"


async def generate(model: Model, prompt: Sequence[int], options: GenerateOptions,
                   cancel: CancelToken, on_prefill: Prefilled | None = None) -> AsyncIterator[Piece]:
    """Yield pieces; ``model.last_usage`` is complete once the iteration ends, however it ends.

    Cancellation ends the iteration normally, between micro-batches and between tokens or, on slow devices, within them;
    several tokens may come without a wait between them (bridge.runtime.decode_ahead). Text held back at the end (an
    unfinished character) comes as a last piece with the last token.
    """
    started = time.perf_counter()
    usage = model.last_usage = Usage(prompt_tokens=len(prompt))
    picker = _picker(model, prompt, options)
    stream = StreamDetokenizer(model.tokenizer, special=True, continues=True)
    stops = StopStrings(options.stop)
    ends = frozenset() if options.ignore_eos else model.tokenizer.eog_ids
    decoder = Decoder(model, picker, needs_logits=options.n_probs > 0, ends=ends)
    token = -1
    try:
        logits = await decoder.prefill(prompt, cancel, usage, on_prefill)
        usage.prompt_ms = _ms_since(started)
        while True:
            if cancel.cancelled:
                usage.finish_reason = "cancelled"
                break
            if usage.completion_tokens == options.n_predict:
                break
            token = picker.pick(logits)
            if token in model.tokenizer.eog_ids and not options.ignore_eos:
                usage.finish_reason = "stop"
                break
            scores = _scores(model, logits, token, options.n_probs)
            picker.accept(token)
            usage.completion_tokens += 1
            text, stopped = stops.push(stream.push(token))
            if text and usage.time_to_first_token_ms is None:
                usage.time_to_first_token_ms = _ms_since(started)
            yield Piece(token, text, "" if stopped else stops.held + stream.pending, scores)
            if stopped:
                usage.finish_reason = "stop"
                return
            if model.n_past == model.n_ctx:
                model.note(NOTE_CONTEXT_LIMIT)
                break
            if usage.completion_tokens < options.n_predict:
                try:
                    with model.interruptible(cancel):
                        logits = await decoder.decode(token, options.n_predict - usage.completion_tokens)
                except Cancelled:
                    continue
        rest, stopped = stops.push(stream.flush())
        if stopped:
            usage.finish_reason = "stop"
        if rest := rest + stops.flush():
            if usage.time_to_first_token_ms is None:
                usage.time_to_first_token_ms = _ms_since(started)
            yield Piece(token, rest)
    finally:
        usage.duration_ms = _ms_since(started)
        usage.decode_ms = max(0.0, usage.duration_ms - usage.prompt_ms)


def _picker(model: Model, prompt: Sequence[int], options: GenerateOptions) -> TokenPicker:
    constraint = budget = None
    if options.grammar is not None:
        constraint = GrammarConstraint(options.grammar, model.tokenizer)
    if options.thinking_budget is not None:
        budget = ThinkingBudget(options.thinking_budget, model.tokenizer, prompt)
    return TokenPicker(Sampler(options.sampling), constraint, budget)


def _scores(model: Model, logits: Any, token: int, n_probs: int) -> tuple[TokenScore, list[TokenScore]] | None:
    if not n_probs:
        return None
    [own], top = score_tokens(model.tokenizer, logits, [token], min(n_probs, model.n_vocab))
    return own, top


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000.0
