"""Turn texts into vectors: one for each, or with --pooling none one for each of its tokens.

Vectors are brought to length 1; those of a reranker are its scores, which stay as they are.
With --json one object: embeddings, tokens (how many each text has).
"""

from __future__ import annotations

import argparse
import json

from bridge.commands.arguments import add_backend, add_json, add_model, text_bytes, token_ids
from bridge.commands.loading import open_model, run_to_end
from bridge.models.pooling import NONE, POOLINGS, RANK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("text", metavar="TEXT", nargs="*", default=[], help="texts; - reads standard input as bytes")
    source.add_argument("--tokens", type=token_ids, metavar="1,2,3", help="token ids instead of text")
    parser.add_argument("--no-normalize", action="store_true", help="keep the vectors' length")
    parser.add_argument("--pooling", choices=POOLINGS, help="how a text becomes one vector (default: as the file says)")
    add_backend(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    run_to_end(embed(arguments))


async def embed(arguments: argparse.Namespace) -> None:
    from bridge.runtime.embeddings import embed_texts, embed_tokens, normalised

    async with open_model(arguments) as (model, *_):
        texts = [arguments.tokens] if arguments.tokens else [
            model.tokenizer.encode(text_bytes(text), add_special=True, parse_special=True) for text in arguments.text]
        keep = arguments.no_normalize or arguments.pooling == RANK or (
            model.embeddings is not None and model.embeddings.pooling == RANK)
        finish = list if keep else normalised
        if arguments.pooling == NONE:
            found = [[list(finish(row)) for row in await embed_tokens(model, tokens)] for tokens in texts]
        else:
            found = [list(finish(vector)) for vector in await embed_texts(model, texts)]
    if arguments.json:
        print(json.dumps({"embeddings": found, "tokens": [len(tokens) for tokens in texts]}))
        return
    for rows in found:
        for row in rows if arguments.pooling == NONE else [rows]:
            print(*(f"{value:.7g}" for value in row))
