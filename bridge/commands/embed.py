"""Turn text into an embedding vector (not in this build)."""

from __future__ import annotations

import argparse

from bridge.commands.arguments import add_backend, add_json, add_model, token_ids
from bridge.errors import UnsupportedError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("text", metavar="TEXT", nargs="*", default=[], help="texts to embed")
    source.add_argument("--tokens", type=token_ids, metavar="1,2,3", help="token ids instead of text")
    parser.add_argument("--no-normalize", action="store_true", help="keep the vectors' length")
    add_backend(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    raise UnsupportedError("embeddings are not available in this build: no embedding architecture is supported yet")
