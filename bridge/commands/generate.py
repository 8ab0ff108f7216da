"""Continue a prompt; text goes to standard output as it comes, figures to standard error.

With --json one object: text, tokens (the generated ids), prompt_tokens, finish_reason, timings.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bridge.bench.timings import timings
from bridge.commands.arguments import add_backend, add_json, add_model, add_prompt, positive, prompt_tokens
from bridge.commands.loading import open_model, run_to_end
from bridge.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_prompt(parser)
    parser.add_argument(
        "-n",
        "--n-predict",
        type=positive,
        default=256,
        metavar="N",
        help="most tokens to generate (default: %(default)s)",
    )
    parser.add_argument("--ignore-eos", action="store_true", help="go on after an end token")
    sampling = parser.add_argument_group("sampling")
    sampling.add_argument(
        "--temp", type=float, default=0.8, help="temperature; 0 takes the best token (default: %(default)s)"
    )
    sampling.add_argument("--top-k", type=int, default=40, metavar="K", help="0 is off (default: %(default)s)")
    sampling.add_argument("--top-p", type=float, default=0.95, metavar="P", help="1 is off (default: %(default)s)")
    sampling.add_argument("--min-p", type=float, default=0.0, metavar="P", help="0 is off (default: %(default)s)")
    sampling.add_argument(
        "--penalty",
        type=float,
        default=1.1,
        help="on tokens among the last 64 generated; 1 is off (default: %(default)s)",
    )
    sampling.add_argument("--presence-penalty", type=float, default=0.0, metavar="X", help="(default: %(default)s)")
    sampling.add_argument("--seed", type=int, help="(default: a random one)")
    sampling.add_argument("--grammar", metavar="FILE", help="a GBNF grammar that the text must follow")
    add_backend(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    run_to_end(generate(arguments))


async def generate(arguments: argparse.Namespace) -> None:
    from bridge.runtime import GenerateOptions
    from bridge.sampling import SamplingOptions
    from bridge.sampling.grammar import Grammar

    sampling = SamplingOptions(
        temp=arguments.temp,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        penalty=arguments.penalty,
        presence_penalty=arguments.presence_penalty,
        seed=arguments.seed,
    )
    grammar_text = None if arguments.grammar is None else read_grammar(arguments.grammar)
    async with open_model(arguments) as (model, load_ms, _):
        options = GenerateOptions(
            n_predict=arguments.n_predict,
            sampling=sampling,
            ignore_eos=arguments.ignore_eos,
            grammar=None if grammar_text is None else Grammar.for_tokenizer(grammar_text, model.tokenizer),
        )
        prompt = prompt_tokens(arguments, model.tokenizer)
        tokens, texts = [], []
        async for piece in model.generate(prompt, options):
            tokens.append(piece.token)
            texts.append(piece.text)
            if not arguments.json:
                print(piece.text, end="", flush=True)
        usage = model.last_usage
        del tokens[usage.completion_tokens :]  # the last piece may repeat its token with text that was held back
        figures = timings(usage, load_ms)
        if arguments.json:
            found = {"text": "".join(texts), "tokens": tokens, "prompt_tokens": len(prompt)}
            print(json.dumps(found | {"finish_reason": usage.finish_reason, "timings": figures}, ensure_ascii=False))
            return
        print()
        print(summary(model, usage, figures), file=sys.stderr)


def read_grammar(path: str) -> str:
    """The text of a grammar file; raises InputError if it is not UTF-8, OSError if it cannot be read."""
    try:
        return Path(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InputError(f"the grammar file is not UTF-8 text: byte {error.start} does not belong there") from None


def summary(model, usage, figures: dict[str, float | None]) -> str:
    """One line: what ran where, how much, how fast."""
    adapter = model.adapter.get("description") or model.adapter.get("device") or ""
    rates = [
        f"{name} {figures[f'{name}_tokens_per_second']:.1f} tokens/s"
        for name in ("prompt", "decode")
        if figures[f"{name}_tokens_per_second"] is not None
    ]
    counts = f"{usage.prompt_tokens} + {usage.completion_tokens} tokens, {usage.finish_reason}"
    return "; ".join([f"{model.backend_name} {adapter}".strip(), counts, *rates])
