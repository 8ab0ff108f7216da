"""The figures of one generation, as ``generate --json`` and ``bench`` print them."""

from __future__ import annotations


def timings(usage, load_ms: float) -> dict[str, float | None]:
    """Milliseconds and tokens per second from a ``bridge.runtime.Usage``; a rate is None where nothing was timed.

    The first token comes out of the prompt's evaluation, so one evaluation less than tokens is decoding, unless the
    last one gave the end token, which is not counted among the tokens.
    """
    decoded = usage.completion_tokens - (usage.finish_reason != "stop")
    return {
        "load_ms": _rounded(load_ms),
        "prompt_ms": _rounded(usage.prompt_ms),
        "decode_ms": _rounded(usage.decode_ms),
        "time_to_first_token_ms": _rounded(usage.time_to_first_token_ms),
        "duration_ms": _rounded(usage.duration_ms),
        "prompt_tokens_per_second": _rate(usage.prompt_tokens - usage.cached_prompt_tokens, usage.prompt_ms),
        "decode_tokens_per_second": _rate(decoded, usage.decode_ms),
    }


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 3)


def _rate(count: int, ms: float) -> float | None:
    return round(1000 * count / ms, 3) if count > 0 and ms > 0 else None
