"""Turn text into token ids with the vocabulary of a model.

Prints the ids separated by commas, or a JSON list. Put -- before a TEXT that begins with a dash.
"""

from __future__ import annotations

import argparse
import json

from bridge.commands.arguments import add_json, add_model, text_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("text", metavar="TEXT", help="the text; - reads standard input as bytes")
    parser.add_argument("--no-special", action="store_true", help="add no begin or end token")
    parser.add_argument("--no-parse-special", action="store_true", help="take special tokens in the text as plain text")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    from bridge.gguf import open_gguf

    with open_gguf(arguments.model) as file:
        ids = file.tokenizer().encode(
            text_bytes(arguments.text),
            add_special=not arguments.no_special,
            parse_special=not arguments.no_parse_special,
        )
    print(json.dumps(ids) if arguments.json else ",".join(map(str, ids)))
