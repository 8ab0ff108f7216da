"""Tokens per second of a loaded model, and what a token costs in counts that do not depend on the machine."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

from bridge.bench.program_timer import Deadline
from bridge.bench.timings import timings
from bridge.runtime import GenerateOptions
from bridge.sampling import SamplingOptions

COUNTED = ("dispatches", "submits", "waits", "maps", "bytes_read", "calls", "created")
"""Those of bridge.gpu.device.Counters that are told per token."""


async def measure_rates(model: Any, n_prompt: int, n_predict: int, repeat: int, load_ms: float,
                        deadline: Deadline) -> list[dict[str, Any]]:
    """Up to ``repeat`` runs, at least one, each a prompt of fixed token ids from an empty context, decoded greedily."""
    runs: list[dict[str, Any]] = []
    while len(runs) < repeat and not (runs and deadline.is_over):
        await _generate(model, n_prompt, n_predict)
        runs.append(timings(model.last_usage, load_ms))
    return runs


async def count_tokens(model: Any, device: Any, n_tokens: int) -> dict[str, float]:
    """What a decoded token costs: the difference between two runs of which one decodes ``n_tokens`` more."""
    counts = []
    for n_predict in (2, 2, 2 + n_tokens):  # the first makes what is made once
        before = asdict(device.counters)
        await _generate(model, 2, n_predict)
        after = asdict(device.counters)
        counts.append({name: after[name] - before[name] for name in COUNTED})
    _, few, many = counts
    return {name: round((many[name] - few[name]) / n_tokens, 3) for name in COUNTED}


def median(runs: list[dict], key: str) -> float | None:
    values = [figures[key] for figures in runs if figures[key] is not None]
    return round(statistics.median(values), 3) if values else None


async def _generate(model: Any, n_prompt: int, n_predict: int) -> None:
    options = GenerateOptions(n_predict=n_predict, sampling=SamplingOptions(temp=0, penalty=1), ignore_eos=True)
    model.forget()
    async for _ in model.generate(prompt_of(model, n_prompt), options):
        pass


def prompt_of(model: Any, n_tokens: int) -> list[int]:
    """So many tokens, always the same."""
    return [(7919 * i + 1) % model.n_vocab for i in range(n_tokens)]
