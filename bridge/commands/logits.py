"""Write the logits after each token of a prompt to a NumPy file: float32 [n_tokens, n_vocab]."""

from __future__ import annotations

import argparse
import os

from bridge.commands.arguments import add_backend, add_model, add_prompt, prompt_tokens
from bridge.commands.loading import open_model, run_to_end
from bridge.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_prompt(parser)
    parser.add_argument("--out", metavar="FILE.npy", required=True, help="the file to write")
    add_backend(parser)


def run(arguments: argparse.Namespace) -> None:
    folder = os.path.dirname(arguments.out) or "."
    if not os.path.isdir(folder):  # before minutes of work, not after
        raise InputError(f"there is no folder {folder!r} to write to")
    run_to_end(write_logits(arguments))


async def write_logits(arguments: argparse.Namespace) -> None:
    import numpy as np

    async with open_model(arguments) as (model, *_):
        logits = await model.evaluate(prompt_tokens(arguments, model.tokenizer), outputs="all")
    with open(arguments.out, "wb") as file:  # np.save given a path would add a suffix to it
        np.save(file, np.asarray(logits, np.float32))
    print(f"{arguments.out}: float32 {list(logits.shape)}")
