"""Operations on rows, each on a few shapes: one table that both backends' tests compare with the numpy reference."""

from __future__ import annotations

import numpy as np

from bridge.graph.graph import ACTIVATIONS

WIDE_RANGE = np.concatenate([np.linspace(-120, 120, 49), [0.0, 1e-30, -1e-3]]).astype(np.float32)


def vectors(tensors, rng, **shapes):
    for name, shape in shapes.items():
        tensors.add_floats(name.replace("__", "."), rng.standard_normal(shape))


def _layer_norm(width, group, per_head, bias):
    def build(b, x, tensors, rng):
        shape = (width // group, group) if per_head else (group,)
        vectors(tensors, rng, n__weight=shape, **({"n__bias": shape} if bias else {}))
        return b.layer_norm(b.scale(x, 3.0, 4.0), "n", 1e-5, group, per_head=per_head)

    return width, build


def _vector(op, width, period):
    def build(b, x, tensors, rng):
        vectors(tensors, rng, v=period)
        return getattr(b, op)(x, "v", period)

    return width, build


def _per_head_rms(b, x, tensors, rng):
    vectors(tensors, rng, n__weight=(3, 8))
    return b.rms_norm(x, "n", 1e-6, 8, per_head=True)


CASES = {
    "layer_norm of a row with a bias": _layer_norm(66, 66, False, True),
    "layer_norm of a row": _layer_norm(1030, 1030, False, False),
    "layer_norm of heads": _layer_norm(48, 16, False, True),
    "layer_norm of heads with their own weights": _layer_norm(36, 12, True, True),
    "layer_norm without weights": (40, lambda b, x, tensors, rng: b.layer_norm(x, None, 1e-5)),
    "rms_norm without weights": (42, lambda b, x, tensors, rng: b.rms_norm(x, None, 1e-6, 14)),
    "rms_norm of heads with their own weights": (24, _per_head_rms),
    "mul": (34, lambda b, x, tensors, rng: b.mul(x, b.scale(x, -2.0))),
    "mul by one column": (34, lambda b, x, tensors, rng: b.mul(x, b.columns(x, 3, 1))),
    "mul by a column for each head": (24, lambda b, x, tensors, rng: b.mul(x, b.columns(x, 1, 1, 8))),
    "dot of heads": (42, lambda b, x, tensors, rng: b.dot(x, b.scale(x, 2.0, 1.0), 7)),
    "dot of rows": (34, lambda b, x, tensors, rng: b.dot(x, b.scale(x, 2.0, 1.0), 34)),
    "mix_runs": (24, lambda b, x, tensors, rng: b.mix_runs(x, b.columns(x, 1, 6), 3)),
    "mix_runs of one run": (10, lambda b, x, tensors, rng: b.mix_runs(x, b.columns(x, 4, 3), 1)),
    "add_vector": _vector("add_vector", 34, 34),
    "add_vector of one element": _vector("add_vector", 6, 1),
    "mul_vector": _vector("mul_vector", 34, 34),
    "mul_vector of a head": _vector("mul_vector", 30, 10),
    "scale with an offset": (34, lambda b, x, tensors, rng: b.scale(x, -3.0, 0.5)),
    "clamp": (34, lambda b, x, tensors, rng: b.clamp(x, -0.5, 1.0)),
    "clamp above only": (34, lambda b, x, tensors, rng: b.clamp(x, -np.inf, 0.25)),
    "columns": (34, lambda b, x, tensors, rng: b.columns(x, 5, 11)),
    "columns of every head": (36, lambda b, x, tensors, rng: b.columns(x, 2, 7, 12)),
    "concat": (18, lambda b, x, tensors, rng: b.concat(b.columns(x, 0, 5), x)),
    "concat by head": (24, lambda b, x, tensors, rng: b.concat(x, b.columns(x, 1, 3, 8), 3)),
    "concat of something shared": (24, lambda b, x, tensors, rng: b.concat(x, b.columns(x, 1, 3), 3, shared=True)),
} | {act: (len(WIDE_RANGE), lambda b, x, tensors, rng, act=act: b.activate(x, act)) for act in ACTIVATIONS}
"""Name -> columns of x, and build(builder, x, tensors, rng) -> the node to look at."""


def inputs(name: str, width: int, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    if name not in ACTIVATIONS:
        return rng.standard_normal((n_rows, width)).astype(np.float32)
    most = 10 if name == "exp" else 120  # WGSL allows exp an error that grows with its argument
    return np.clip(np.stack([np.roll(WIDE_RANGE, i) for i in range(n_rows)]), -most, most)
