"""Write a model with random weights in the shape of a real one, for benchmarks and tests without a download.

The same arguments give the same file. Sizes: llama tiny 135m 360m 1.7b 1b 3b 8b, qwen2 tiny 0.5b 1.5b 3b 7b,
qwen3 tiny 0.6b 1.7b 4b 8b, gemma2 tiny 2b 9b, gemma3 tiny 270m 1b 4b. The options after --seed change a size.
Commands that run a model take synth:SIZE-QUANT or synth:ARCH-SIZE-QUANT for one, and then nothing is written.
"""

from __future__ import annotations

import argparse
import os

from bridge.commands.arguments import positive

CHANGES = {  # option -> (field of Shape, help)
    "--layers": ("n_layer", "number of layers"),
    "--embd": ("n_embd", "width of the residual stream"),
    "--ff": ("n_ff", "width of the feed-forward part"),
    "--heads": ("n_head", "attention heads"),
    "--kv-heads": ("n_head_kv", "key/value heads"),
    "--head-dim": ("head_dim", "width of a head"),
    "--vocab": ("n_vocab", "number of tokens"),
    "--ctx": ("n_ctx", "context length written to the file"),
    "--window": ("sliding_window", "sliding window of the gemma families"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT.gguf", help="the file to write")
    parser.add_argument("--arch", default="llama", help="architecture (default: %(default)s)")
    parser.add_argument("--size", default="tiny", help="size by name (default: %(default)s)")
    parser.add_argument(
        "--quant", default="Q4_K_M", help="a type or mix: Q4_0, Q4_K_M, Q6_K, Q8_0, F16 … (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    for option, (field, text) in CHANGES.items():
        parser.add_argument(option, dest=field, type=positive, metavar="N", help=text)
    parser.add_argument("--untied", action="store_true", help="an output matrix of its own")


def run(arguments: argparse.Namespace) -> None:
    from bridge.errors import InputError
    from bridge.synth import shape, write_model

    if arguments.seed < 0:
        raise InputError(f"the seed of a synthetic model must not be negative; got {arguments.seed}")
    fields = [field for field, _ in CHANGES.values()]
    changes = {field: getattr(arguments, field) for field in fields if getattr(arguments, field) is not None}
    if arguments.untied:
        changes["tied"] = False
    write_model(arguments.out, shape(arguments.arch, arguments.size, **changes), arguments.quant, arguments.seed)
    print(f"{arguments.out}: {os.path.getsize(arguments.out) / 1e6:.1f} MB")
