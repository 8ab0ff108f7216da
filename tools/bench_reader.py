"""Measures the GGUF reader: ``python -m tools.bench_reader [decode | open | encode …] [--model PATH] [--pyodide] [--json]``.

decode   MB/s of float32 values for every block format, beside gguf-py's dequantize
open     the header, without and with its tokenizer
encode   1 MB of text of several kinds, some of which blow up tokenizers that are not linear

With ``--pyodide`` the same is measured inside Pyodide under Node (needs build/site). Every figure is the best of several
runs, ratios are of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "build" / "models" / "gemma-3-270m-q4_k_m.gguf"
IN_PYODIDE = sys.platform == "emscripten"
N_VALUES = 1 << 20 if IN_PYODIDE else 1 << 22
PROSE = (
    "The bridge was finished in the spring of 1937; 4,200 feet of it hang between two towers. «Naïve» visitors ask why "
    "it isn't golden (it is \"International Orange\"), and the fog answers for them.\n\n"
)
TEXTS = {"prose": PROSE, "spaces": " ", "one letter": "a", "digits": "7", "emoji": "😀", "Chinese": "桥梁", "newlines": "\n"}
MEGABYTE = 1_000_000


def best(run: Callable[[], Any], repeats: int, at_least: float = 0.0) -> float:
    """Seconds of the fastest of ``repeats`` runs, and of as many more as ``at_least`` seconds allow.

    A browser's engine compiles hot code again, better, after a while.
    """
    times: list[float] = []
    while len(times) < repeats or sum(times) < at_least:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


def measure_decode(options: argparse.Namespace) -> Iterator[dict]:
    import numpy as np

    from bridge.quants import QUANT_TYPES, dequantize
    from bridge.quants.random import random_blocks

    theirs = gguf_py()
    rng = np.random.default_rng(0)
    for type in options.types or QUANT_TYPES:
        data = np.ascontiguousarray(random_blocks(type, N_VALUES // type.block_size, rng)).reshape(-1)
        seconds = best(lambda: dequantize(data, type), 3, 0.5)
        row = {"type": type.name, "MB/s": N_VALUES * 4 / seconds / 1e6, "gguf-py MB/s": None, "ratio": None}
        if theirs:
            dequantize_theirs, type_ids = theirs
            try:
                other = best(lambda: dequantize_theirs(data.reshape(64, -1), type_ids[type.name]), 3, 0.5)
                row |= {"gguf-py MB/s": N_VALUES * 4 / other / 1e6, "ratio": other / seconds}
            except (KeyError, NotImplementedError):
                pass  # a type that gguf-py does not decode
        yield row


def gguf_py() -> tuple[Callable, Any] | None:
    """gguf-py's dequantize and its types; in Pyodide from the folder that is mounted, without the rest of the package."""
    if IN_PYODIDE and os.path.isdir("/gguf"):
        package = types.ModuleType("gguf")
        package.__path__ = ["/gguf"]
        sys.modules["gguf"] = package
    try:
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        return None
    return dequantize, GGMLQuantizationType


def measure_open(options: argparse.Namespace) -> Iterator[dict]:
    from bridge.gguf import open_gguf

    def tokenizer() -> None:
        with open_gguf(options.model) as file:
            file.tokenizer().encode("a")

    opening = best(lambda: open_gguf(options.model).close(), 3)
    yield {"what": "header", "seconds": opening}
    yield {"what": "tokenizer, built and used once", "seconds": best(tokenizer, 3) - opening}
    with open_gguf(options.model) as file:
        reads, nbytes, header = file.source.reads, file.bytes_read, file.data_offset
    yield {"what": f"{header} bytes of header: {reads} reads, {nbytes} bytes"}


def measure_encode(options: argparse.Namespace) -> Iterator[dict]:
    from bridge.gguf import open_gguf

    with open_gguf(options.model) as file:
        tokenizer = file.tokenizer()
    tokenizer.encode("a")
    for name, unit in TEXTS.items():
        text = unit * (MEGABYTE // len(unit.encode()) + 1)
        tenth = text[: len(text) // 10]
        small, large = (best(lambda: tokenizer.encode(part), 1) for part in (tenth, text))
        n_bytes = len(text.encode())
        yield {"text": name, "bytes": n_bytes, "MB/s": n_bytes / large / 1e6, "ten times the text takes": large / small}


MEASURES = {"decode": measure_decode, "open": measure_open, "encode": measure_encode}


def in_pyodide(argv: list[str], model: Path) -> int:
    """Run this module there; the model's path is one below the mounted disk."""
    environment = dict(os.environ)
    try:
        import gguf

        environment["PYTHON_GGUF"] = str(Path(gguf.__file__).parent)
    except ImportError:
        pass
    arguments = [argument for argument in argv if argument != "--pyodide"] + ["--model", f"/disk{model.resolve()}"]
    command = ["node", str(ROOT / "tools/in_pyodide.mjs"), str(ROOT / "build/site"), "tools.bench_reader", *arguments]
    return subprocess.run(command, env=environment).returncode


def types_list(text: str) -> list:
    from bridge.quants import quant_type

    return [quant_type(name) for name in text.split(",")]


def shown(row: dict) -> str:
    return "  ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{value}" for key, value in row.items() if value is not None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench_reader", description=__doc__.splitlines()[0])
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"{', '.join(MEASURES)} (default: all of them)")
    parser.add_argument("--model", type=Path, default=MODEL, help="GGUF file (default: Gemma 3 270M in build/models)")
    parser.add_argument("--types", type=types_list, help="block formats to decode, such as Q4_K,Q6_K (default: all)")
    parser.add_argument("--pyodide", action="store_true", help="measure inside Pyodide under Node")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    if unknown := set(options.measures) - set(MEASURES):
        parser.error(f"there is no measure {min(unknown)!r}; there are {', '.join(MEASURES)}")
    if options.pyodide:
        return in_pyodide(sys.argv[1:], options.model)
    print(f"Python {platform.python_version()} on {sys.platform}", file=sys.stderr)
    for name in options.measures or MEASURES:
        for row in MEASURES[name](options):
            print(json.dumps({"measure": name, **row}) if options.json else f"{name:7} {shown(row)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
