"""Graphs over the texts of a batch, for the tests of every backend: each of one operation, with all rows or one per text."""

from __future__ import annotations

import asyncio
from functools import partial

import numpy as np

from bridge.graph import RopeTable

TEXTS = (5, 1, 9, 3)
"""Lengths of the texts of a batch."""
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, 24, sum(TEXTS))]
FIRST_ROWS = [0, 5, 6, 15]

ATTENTION = {
    "everything": {},
    "symmetric window": {"before": 2, "after": 2},
    "causal": {"after": 0},
    "ahead only": {"before": 0, "after": 3},
    "soft-capped": {"softcap": 1.5},
    "slopes": {"slopes": (0.5, 0.25, 0.125, 0.0625, 0.03125, 1.0)},
    "slopes in a window": {"slopes": (0.5,) * 6, "before": 4, "after": 4},
    "buckets": {"bias": "bias", "buckets": (4, 4, 3, 1, 0, 1, 2, 5, 5)},
}
HEADS = ((6, 2, 16, 16), (3, 3, 10, 6), (2, 1, 24, 40))
"""n_head, n_head_kv, head_dim, head_dim_v"""


def values(n, width, seed=0):
    return np.random.default_rng(seed).standard_normal((n, width)).astype(np.float32)


def attention(op, attrs, heads=HEADS[0]):
    """Rows of x -> q, k, v -> attention; ``op`` is a harness's OneOperation over 24 rows."""
    n_head, n_head_kv, head_dim, head_dim_v = heads
    for i, (name, width) in enumerate((("q", n_head * head_dim), ("k", n_head_kv * head_dim), ("v", n_head_kv * head_dim_v))):
        op.tensors.add_floats(f"{name}.weight", values(width, op.width, i))
    op.tensors.add_floats("bias", values(6, n_head, 9))
    b, x = op.builder, op.x()
    q, k, v = (b.matmul(x, name, op.tensors.infos[f"{name}.weight"].shape[0]) for name in "qkv")
    y = b.text_attention(q, k, v, n_head=n_head, n_head_kv=n_head_kv, head_dim=head_dim, head_dim_v=head_dim_v,
                         scale=head_dim**-0.5 / 4, **attrs)
    return every_row(op, y)


def rope(op):
    table = op.builder.rope_table("t", RopeTable(8, 10000.0))
    return every_row(op, op.builder.rope(op.x(), table, 8, "neox"))


def positions_and_first(op):
    op.tensors.add_floats("positions", values(16, op.width, 4))
    op.tensors.add_floats("types", values(2, op.width, 5))
    b = op.builder
    return every_row(op, b.add(b.add(op.x(), b.embed_positions("positions", 16, op.width)), b.embed_first("types", 2, op.width)))


def mean(op):
    return op.builder.with_embeddings(*_finished(op, op.builder.text_mean(op.x())), "mean")


def softmax(op):
    return every_row(op, op.builder.softmax(op.x()))


def every_row(op, y):
    return op.builder.with_embeddings(*_finished(op, op.builder.selected(y)), "none")


def _finished(op, y):
    return op.builder.finish_encoder(y, op.n_rows), y


ROWS = {"rope": rope, "positions": positions_and_first, "mean": mean, "softmax": softmax}
"""The other operations, over 24 rows of 24 columns."""


def _attention_case(make, name, heads):
    op, attrs = make(values(24, 12)), dict(ATTENTION[name])
    if "slopes" in attrs:
        attrs["slopes"] = attrs["slopes"][:heads[0]]
    return op, attention(op, attrs, heads), range(len(TOKENS))


def _rows_case(make, name):
    op = make(values(24, 24))
    return op, ROWS[name](op), [0, 7, 17] if name == "mean" else range(len(TOKENS))


def _stored_as_a_row_case(make, type_name):
    """A matrix of one row may be a vector in the file."""
    op = make(values(24, 32))
    op.tensors.add_blocks("w.weight", type_name, 32)
    return op, every_row(op, op.builder.matmul(op.x(), "w", 1)), range(len(TOKENS))


CASES = {
    **{f"attention, {name}, heads {heads}": partial(_attention_case, name=name, heads=heads)
       for name in ATTENTION for heads in HEADS},
    **{name: partial(_rows_case, name=name) for name in ROWS},
    **{f"one row of {type_name}": partial(_stored_as_a_row_case, type_name=type_name) for type_name in ("F32", "Q8_0")},
}
"""Each makes (operation, graph, wanted rows) with a harness's OneOperation."""


def on_both(harness, target, name, **options):
    """The results of a case on ``target`` and on the reference; ``harness`` is a backend's module of that name."""
    op, graph, outputs = CASES[name](harness.OneOperation)
    outputs = list(outputs)

    async def run():
        session = await harness.open_session(target, graph, op.tensors, n_ubatch=32, max_outputs=32, **options)
        try:
            got = np.array(await session.embed(TOKENS, 0, outputs, TEXTS)).reshape(len(outputs), -1)
        finally:
            await session.close()
        expected = await harness.reference_of(graph, op.tensors).embed(TOKENS, 0, outputs, TEXTS)
        return got, expected.reshape(len(outputs), -1)

    return asyncio.run(run())
