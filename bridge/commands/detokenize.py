"""Turn token ids back into text with the vocabulary of a model."""

from __future__ import annotations

import argparse
import itertools
import json

from bridge.commands.arguments import add_json, add_model, token_ids


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("ids", metavar="ID", nargs="+", type=token_ids, help="token ids, separated by blanks or commas")
    parser.add_argument("--special", action="store_true", help="show special tokens")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    from bridge.gguf import open_gguf

    ids = list(itertools.chain(*arguments.ids))
    with open_gguf(arguments.model) as file:
        text = file.tokenizer().decode(ids, special=arguments.special)
    print(json.dumps(text, ensure_ascii=False) if arguments.json else text)
