"""Measure prompt and decode speed of a model here; prints JSON.

The prompt is a fixed sequence of token ids, decoding is greedy and does not stop at end tokens. Each run starts from an
empty context; the rates are medians over the runs, which are listed too. On webgpu also what a token costs in
dispatches, submissions, waits and bytes read, and every kernel beside the device's measured speed; lines for people go
to standard error. MODEL may be synthetic: synth:1b-Q4_K_M (see the synth command).
"""

from __future__ import annotations

import argparse
import json
import sys

from bridge.commands.arguments import add_backend, add_json, add_model, positive, positive_list
from bridge.commands.loading import open_model, run_to_end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "-n", "--n-predict", type=positive, default=32, metavar="N", help="tokens to generate (default: %(default)s)"
    )
    parser.add_argument(
        "--prompt-tokens", type=positive_list, default=(64,), metavar="N,…", help="lengths of prompts (default: 64)"
    )
    parser.add_argument("--repeat", type=positive, default=3, metavar="N", help="runs (default: %(default)s)")
    parser.add_argument("--ubatch", type=positive, metavar="N", help="most tokens in a batch (default: the backend's)")
    parser.add_argument(
        "--seconds", type=positive, metavar="S", help="begin nothing new after so long; what is missing is told"
    )
    parser.add_argument(
        "--cpu", action="store_true", help="kernels in processor time, for software adapters on a busy machine"
    )
    add_json(parser, "no lines for people")
    add_backend(parser)


def run(arguments: argparse.Namespace) -> None:
    print(json.dumps(run_to_end(measured(arguments)), indent=1))


async def measured(arguments: argparse.Namespace) -> dict:
    from bridge.bench.measure import BenchOptions, measure

    options = BenchOptions(prompts=arguments.prompt_tokens, n_predict=arguments.n_predict, repeat=arguments.repeat,
                           seconds=arguments.seconds, cpu=arguments.cpu)

    def report(line: str) -> None:
        if device is not None and not arguments.json:
            print(line, file=sys.stderr, flush=True)

    async with open_model(arguments) as (model, load_ms, device):
        return await measure(model, load_ms, options, device, report)
