"""Serve the demo site: static files with byte ranges, ETags and the headers for cross-origin isolation."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dir", metavar="DIR", nargs="?", default="build/site", help="folder to serve (default: %(default)s)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="port, 0 for any free one (default: %(default)s)")
    parser.add_argument("--no-isolation", action="store_true", help="leave out COOP and COEP, as a plain host would")


def run(arguments: argparse.Namespace) -> None:
    from bridge.serve import serve

    serve(arguments.dir, arguments.host, arguments.port, isolated=not arguments.no_isolation)
