"""Rank documents by how well they answer a query, with a reranking model; the best comes first.

With --json one object: scores (in the order of the documents), labels (all outputs of the model's head for each), tokens.
"""

from __future__ import annotations

import argparse
import json

from bridge.commands.arguments import add_backend, add_json, add_model
from bridge.commands.loading import open_model, run_to_end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("query", metavar="QUERY", help="what is asked")
    parser.add_argument("documents", metavar="DOCUMENT", nargs="+", help="texts to rank")
    add_backend(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    run_to_end(rank(arguments))


async def rank(arguments: argparse.Namespace) -> None:
    from bridge.runtime.ranking import rank_documents

    async with open_model(arguments) as (model, *_):
        ranked = await rank_documents(model, arguments.query, arguments.documents)
    if arguments.json:
        print(json.dumps({"scores": [found.score for found in ranked], "labels": [list(found.labels) for found in ranked],
                          "tokens": [found.n_tokens for found in ranked]}))
        return
    for found, document in sorted(zip(ranked, arguments.documents), key=lambda pair: -pair[0].score):
        print(f"{found.score:.6g}\t{document}")
