"""Graphs of one recurrence over random inputs, for comparing a backend with the reference."""

from __future__ import annotations

import numpy as np

N_TOKENS = 24


def token_shift(op, width=20, n_mixes=3):
    op.tensors.add_floats("mix", _normal(op, n_mixes, 1, 1, width))
    return op.finish(op.builder.token_shift(op.x(), "mix", n_mixes, 1, 1, width))


def conv(op, width=70, taps=4, bias=False):
    op.tensors.add_floats("taps.weight", _normal(op, width, taps))
    if bias:
        op.tensors.add_floats("taps.bias", _normal(op, width))
    return op.finish(op.builder.conv(op.x(), "taps", taps))


def selective_scan(op, n_head=8, head_dim=4, n_group=2, d_state=20, scalar_decay=True):
    width = n_head * head_dim
    x, dt, bc = _parts(op, x=width, dt=n_head, bc=2 * n_group * d_state)
    op.tensors.add_floats("ssm_a", -np.exp(_normal(op, n_head, 1 if scalar_decay else d_state)))
    op.tensors.add_floats("ssm_d", _normal(op, n_head, *[1] * scalar_decay))
    return op.finish(op.builder.selective_scan(x, dt, bc, "ssm", d_state, scalar_decay=scalar_decay))


def gated_delta(op, n_head=6, n_head_k=2, head_dim=12, head_dim_v=20, interleaved=False):
    q, k, v, gate, beta = _parts(op, q=n_head_k * head_dim, k=n_head_k * head_dim, v=n_head * head_dim_v, gate=n_head,
                                 beta=n_head)
    k, gate, beta = op.builder.scale(k, 0.3), op.builder.softcap(gate, 0.5), op.builder.softcap(beta, 0.9)
    result = op.builder.gated_delta(q, k, v, gate, beta, n_head_k=n_head_k, interleaved=interleaved, scale=0.25)
    return op.finish(result)


def wkv7(op, n_head=3, head_dim=20):
    width = n_head * head_dim
    r, w, k, v, ab = _parts(op, r=width, w=width, k=width, v=width, ab=2 * width)
    return op.finish(op.builder.wkv7(r, op.builder.softcap(w, 0.9), k, v, op.builder.scale(ab, 0.05), head_dim))


GRAPHS = [
    (token_shift, 20, {}), (token_shift, 6, {"width": 6, "n_mixes": 1}),
    (conv, 70, {"bias": True}), (conv, 10, {"width": 10, "taps": 2}), (conv, 8, {"width": 8, "taps": 9}),
    (selective_scan, 32, {}), (selective_scan, 36, {"n_head": 36, "head_dim": 1, "n_group": 1, "d_state": 16,
                                                     "scalar_decay": False}),
    (selective_scan, 24, {"n_head": 2, "head_dim": 12, "n_group": 1, "d_state": 32, "scalar_decay": False}),
    (gated_delta, 16, {}), (gated_delta, 16, {"interleaved": True}),
    (gated_delta, 16, {"n_head": 2, "n_head_k": 2, "head_dim": 32, "head_dim_v": 32}),
    (wkv7, 16, {}), (wkv7, 16, {"n_head": 2, "head_dim": 64}),
]
"""(graph of an OneOperation, width of its input rows, parameters)"""


def names():
    return [" ".join([graph.__name__, *(f"{k}={v}" for k, v in parameters.items())]) for graph, _, parameters in GRAPHS]


def _normal(op, *shape):
    return op.tensors._rng.standard_normal(shape).astype(np.float32)


def _parts(op, **widths):
    """Products of x with random matrices, of those widths."""
    x = op.x()
    for name, width in widths.items():
        op.tensors.add_floats(f"{name}.weight", _normal(op, width, op.width) / np.float32(op.width**0.5))
    return [op.builder.matmul(x, name, width) for name, width in widths.items()]
