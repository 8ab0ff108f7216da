"""Measure prompt and decode speed of a model here; prints JSON.

The prompt is a fixed sequence of token ids, decoding is greedy and does not stop at end tokens. Each run starts from an
empty context; the rates are medians over the runs, which are listed too.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics

from bridge.commands.arguments import add_backend, add_model, positive
from bridge.commands.loading import open_model, run_to_end
from bridge.commands.timings import timings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "-n", "--n-predict", type=positive, default=32, metavar="N", help="tokens to generate (default: %(default)s)"
    )
    parser.add_argument(
        "--prompt-tokens", type=positive, default=64, metavar="N", help="length of the prompt (default: %(default)s)"
    )
    parser.add_argument("--repeat", type=positive, default=3, metavar="N", help="runs (default: %(default)s)")
    add_backend(parser)


def run(arguments: argparse.Namespace) -> None:
    print(json.dumps(run_to_end(measure(arguments)), indent=1))


async def measure(arguments: argparse.Namespace) -> dict:
    """The figures, as they are printed."""
    from bridge.runtime import GenerateOptions
    from bridge.sampling import SamplingOptions

    greedy = SamplingOptions(temp=0, penalty=1)
    options = GenerateOptions(n_predict=arguments.n_predict, sampling=greedy, ignore_eos=True)
    runs = []
    async with open_model(arguments) as (model, load_ms):
        prompt = [(7919 * i + 1) % model.n_vocab for i in range(arguments.prompt_tokens)]
        for _ in range(arguments.repeat):
            model.forget()
            async for _ in model.generate(prompt, options):
                pass
            runs.append(timings(model.last_usage, load_ms))
        return {
            "model_bytes": model.nbytes,
            "architecture": model.architecture,
            "backend": model.backend_name,
            "adapter": dict(model.adapter),
            "python": platform.python_version(),
            "n_ctx": model.n_ctx,
            "kv_type": arguments.kv,
            "prompt_tokens": len(prompt),
            "n_predict": arguments.n_predict,
            "load_ms": round(load_ms, 3),
            "prompt_tokens_per_second": median(runs, "prompt_tokens_per_second"),
            "decode_tokens_per_second": median(runs, "decode_tokens_per_second"),
            "runs": runs,
        }


def median(runs: list[dict], key: str) -> float | None:
    values = [figures[key] for figures in runs if figures[key] is not None]
    return statistics.median(values) if values else None
