"""Decode rows of a tensor, reading only those rows.

A row is the innermost dimension; a tensor of more dimensions is a stack of rows.
"""

from __future__ import annotations

import argparse
import json
import time

from bridge.commands.arguments import add_json, add_model, token_ids

SHOWN = 8  # values per row in the text form


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("tensor", metavar="TENSOR", help="a tensor's name, such as token_embd.weight")
    parser.add_argument("rows", metavar="ROW", nargs="+", type=token_ids, help="row numbers, from 0")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    import bridge.quants.decode  # noqa: F401  numpy with it, before the clock starts
    from bridge.gguf import open_gguf

    ids = [row for group in arguments.rows for row in group]
    with open_gguf(arguments.model) as file:
        header = file.bytes_read
        started = time.perf_counter()
        values = file.rows(arguments.tensor, ids)
        elapsed_ms = (time.perf_counter() - started) * 1000
        tensor, nbytes = file.tensors[arguments.tensor], file.bytes_read - header
    if arguments.json:
        rows = [{"row": row, "values": line} for row, line in zip(ids, values.tolist(), strict=True)]
        found = {"tensor": tensor.name, "type": tensor.type.name, "shape": list(tensor.shape), "rows": rows}
        print(json.dumps(found | {"bytes_read": nbytes, "tensor_bytes": tensor.nbytes}))
        return
    for row, line in zip(ids, values, strict=True):
        more = f" … {len(line) - SHOWN} more" if len(line) > SHOWN else ""
        print(f"{row}: {' '.join(f'{value:.6g}' for value in line[:SHOWN])}{more}")
    print(
        f"{len(ids)} rows of {values.shape[1]} in {elapsed_ms:.1f} ms -- {values.nbytes / 2**10:.1f} KiB decoded, "
        f"not {tensor.nbytes / 2**20:.1f} MiB ({nbytes / 2**10:.1f} KiB read)"
    )
