"""Writes docs/models.md, what runs where, from the code: ``python -m tools.models_table [--check]``.

An architecture counts as running on a backend when the backend has kernels for every step of every model of it under
tests/data/models; that it then computes llama.cpp's numbers is what the tests show.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from bridge.gguf import open_gguf
from bridge.models import ARCHITECTURES
from bridge.quants.types import QUANT_TYPES
from bridge.runtime.support import BACKENDS, missing_for

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "models.md"
SAMPLES = ROOT / "tests" / "data" / "models"
COLUMNS = {"reference": "numpy", "simd": "CPU (WebAssembly)", "webgpu": "WebGPU"}

HEAD = """# What runs

Written by `python -m tools.models_table` from the code, and compared with it in the tests.
`python -m bridge inspect MODEL` tells the same of one file, from its header.

## Architectures

`general.architecture` of a file. Each is compared with llama.cpp on tiny models, on all three backends.
"""
QUANTS = """
## Types of tensors

What the weights of a matrix product, of experts and of an embedding may be stored as, in any mixture.
*expanded*: kept as bytes with a scale per 16 columns, which takes more memory than the file and loses nothing.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the document is current")
    text = document()
    if not parser.parse_args(arguments).check:
        DOCUMENT.write_text(text)
    elif DOCUMENT.read_text() != text:
        print("docs/models.md is not what the code says: run python -m tools.models_table", file=sys.stderr)
        return 1
    return 0


def document() -> str:
    return "\n".join([HEAD, *_table("architecture", _architectures()), QUANTS, *_table("type", _types()), ""])


def _table(first: str, rows: Iterator[tuple[str, list[str]]]) -> Iterator[str]:
    yield "| " + " | ".join([first, *COLUMNS.values()]) + " |"
    yield "|---" * (1 + len(COLUMNS)) + "|"
    for name, cells in rows:
        yield "| " + " | ".join([f"`{name}`", *cells]) + " |"


def _architectures() -> Iterator[tuple[str, list[str]]]:
    missing: dict[str, list[dict[str, str | None]]] = {name: [] for name in ARCHITECTURES}
    for path in sorted(SAMPLES.glob("*.gguf")):
        with open_gguf(path) as file:
            if file.architecture in missing:
                missing[file.architecture].append(missing_for(file.metadata, file.tensors))
    for name, found in sorted(missing.items()):
        if not found:
            raise LookupError(f"no file under {SAMPLES} has the architecture {name}")
        yield name, ["yes" if not any(file[backend] for file in found) else "no" for backend in COLUMNS]


def _types() -> Iterator[tuple[str, list[str]]]:
    from bridge.gpu.formats import FORMATS as GPU
    from bridge.simd.formats import FORMATS as CPU

    for type in QUANT_TYPES:
        if type.name in CPU or type.name in GPU:
            cpu = "no" if type.name not in CPU else "expanded" if CPU[type.name].is_expanded else "yes"
            yield type.name, ["yes", cpu, "yes" if type.name in GPU else "no"]


assert set(COLUMNS) == set(BACKENDS)

if __name__ == "__main__":
    sys.exit(main())
