"""Arguments that several commands share, and how their text becomes values."""

from __future__ import annotations

import argparse
import os
import sys


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a GGUF file: path or http(s) URL")


def add_json(parser: argparse.ArgumentParser, help: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=help)


def add_backend(parser: argparse.ArgumentParser) -> None:
    """What decides how a model is loaded; ``loading.open_model`` reads it."""
    parser.add_argument(
        "--backend",
        choices=("auto", "simd", "webgpu", "reference"),
        default="auto",
        help="where to compute; auto: webgpu on a hardware adapter, else simd (default: %(default)s)",
    )
    parser.add_argument("--threads", type=positive, metavar="N", help="of the simd backend (default: one per core)")
    parser.add_argument(
        "--precision",
        choices=("fast", "exact"),
        help="of the simd backend; fast rounds activations to bytes, as llama.cpp does (default: exact with --kv f32)",
    )
    parser.add_argument(
        "--kv",
        type=cache_type,
        default="f16",
        metavar="TYPE",
        help="of the kv cache: f16, f32, q8_0 or q4_0, or two of them for K and V, as q8_0/f16 (default: %(default)s)",
    )
    parser.add_argument(
        "--ctx", type=positive, metavar="N", help="context size in tokens (default: as trained, at most 4096)"
    )


def cache_type(text: str) -> str:
    from bridge.errors import InputError
    from bridge.graph.cache import cache_types

    try:
        cache_types(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def add_prompt(parser: argparse.ArgumentParser) -> None:
    """A prompt as text or as token ids; ``prompt_tokens`` reads it."""
    prompt = parser.add_mutually_exclusive_group(required=True)
    prompt.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt; - reads standard input as bytes")
    prompt.add_argument("--tokens", type=token_ids, metavar="1,2,3", help="the prompt as token ids")


def prompt_tokens(arguments: argparse.Namespace, tokenizer) -> list[int]:
    if arguments.tokens:
        return arguments.tokens
    return tokenizer.encode(text_bytes(arguments.prompt), add_special=True, parse_special=True)


def positive(text: str) -> int:
    value = _integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def positive_list(text: str) -> tuple[int, ...]:
    """``512,16``: positive numbers separated by commas, at least one."""
    return tuple(map(positive, text.split(",")))


def token_ids(text: str) -> list[int]:
    """``1,2,3``: ids separated by commas or blanks, at least one."""
    ids = [_integer(part) for part in text.replace(",", " ").split()]
    if not ids:
        raise argparse.ArgumentTypeError("there are no token ids")
    return ids


def text_bytes(text: str) -> bytes:
    """The bytes of a TEXT argument as the shell gave them; ``-`` stands for standard input, byte for byte."""
    return sys.stdin.buffer.read() if text == "-" else os.fsencode(text)


def _integer(text: str) -> int:
    try:
        return int(text, 10)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None
