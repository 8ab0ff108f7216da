"""The command line, ``python -m bridge COMMAND …``: one command per intent, one module per command.

Exit status: 0 done, 1 bad input (a model, an option value, a file), 2 bad usage, 130 interrupted, 141 the reader of the
output went away. What went wrong is one line on standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from bridge import __version__
from bridge.commands import bench, detokenize, embed, generate, inspect, logits, rank, rows, serve, synth, tokenize
from bridge.errors import BridgeError

COMMANDS = (inspect, tokenize, detokenize, rows, logits, generate, embed, rank, synth, bench, serve)
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + 13  # SIGPIPE, which Windows lacks


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's) and return its exit status."""
    try:
        arguments = build_parser().parse_args(argv)
        arguments.run(arguments)
        sys.stdout.flush()
        return 0
    except SystemExit as stop:  # argparse: help, version, bad usage
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    except (BridgeError, OSError) as error:
        print(f"bridge: {_one_line(error)}", file=sys.stderr)
        return 1


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m bridge", description="Read and run language models in GGUF files.")
    parser.add_argument("--version", action="version", version=f"bridge {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        summary = command.__doc__.strip().splitlines()[0]
        subparser = commands.add_parser(
            name,
            help=summary,
            description=command.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


class _Parser(argparse.ArgumentParser):
    """Bad usage in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"bridge: {message} (see {self.prog} --help)\n")


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {os.fspath(error.filename)!r}" if error.filename else error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _discard_output() -> None:
    """Nobody reads standard output any more: what is still buffered must not fail again at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
