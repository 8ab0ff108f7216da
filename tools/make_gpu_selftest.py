"""Writes ``bridge/gpu/selftest.json``: what the self-test of a WebGPU device must compute (bridge/gpu/selftest.py).

    python -m tools.make_gpu_selftest [--check]

Run it after adding a block format. ``--check`` only says whether the file is what would be written.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from pathlib import Path

import numpy as np

from bridge.gpu import selftest_cases as selftest
from bridge.gpu.formats import FORMATS
from bridge.quants import dequantize
from bridge.quants.random import random_blocks

FILE = Path(selftest.__file__).with_name("selftest.json")
SCALES = (0.05, 0.02, 0.002)
"""Standard deviation of the values of each row; the last makes most formats' half-precision scales subnormal."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether the file is up to date")
    check = parser.parse_args(arguments).check
    text = json.dumps(answers(), indent=0) + "\n"
    if check:
        same = FILE.exists() and FILE.read_text() == text
        print(f"{FILE.name} is {'up to date' if same else 'not what this tool writes'}")
        return 0 if same else 1
    FILE.write_text(text)
    print(f"wrote {FILE.name}, {len(text)} bytes, {len(FORMATS)} formats")
    return 0


def answers() -> dict:
    rng = np.random.default_rng(20240229)
    return {
        "formats": {name: format_answers(name, rng) for name in FORMATS},
    }


def format_answers(name: str, rng: np.random.Generator) -> dict:
    type_ = FORMATS[name].type
    n_in = max(64, type_.block_size)
    n_blocks = n_in // type_.block_size
    blocks = b"".join(random_blocks(type_, n_blocks, rng, scale).tobytes() for scale in SCALES)
    rows = dequantize(blocks, name).reshape(selftest.N_ROWS, n_in).astype(np.float64)
    products = inputs(n_in) @ rows.T
    ends = np.concatenate([rows[:, :selftest.ENDS], rows[:, -selftest.ENDS:]], axis=1)
    return {"n_in": n_in, "rows": base64.b64encode(blocks).decode(), "products": _base64(products), "ends": _base64(ends)}


def inputs(width: int) -> np.ndarray:
    return np.array([[selftest.input_value(t, i) for i in range(width)] for t in range(selftest.N_TOKENS)])


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


if __name__ == "__main__":
    sys.exit(main())
