"""Operations within the texts of a batch, by the CPU kernels against the numpy reference."""

import asyncio

import numpy as np
import pytest

from tests.simd.harness import OneOperation, assert_close, open_session, reference_of
from tests.graph import texts
from tests.graph.texts import ATTENTION, HEADS, ROWS, TEXTS, TOKENS, values

OUTPUTS = {"mean": [0, 7, 17]}


def embed(host, graph, op, outputs=None, **options):
    outputs = list(range(len(TOKENS))) if outputs is None else outputs

    async def on_both():
        session = await open_session(host, graph, op.tensors, n_ubatch=32, max_outputs=32, **options)
        try:
            got = np.array(await session.embed(TOKENS, 0, outputs, TEXTS)).reshape(len(outputs), -1)
        finally:
            await session.close()
        expected = await reference_of(graph, op.tensors).embed(TOKENS, 0, outputs, TEXTS)
        return got, expected.reshape(len(outputs), -1)

    return asyncio.run(on_both())


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(host, name, heads):
    attrs = dict(ATTENTION[name])
    if "slopes" in attrs:
        attrs["slopes"] = attrs["slopes"][:heads[0]]
    op = OneOperation(values(24, 12))
    assert_close(*embed(host, texts.attention(op, attrs, heads), op))


@pytest.mark.parametrize("name", ROWS)
def test_rows(host, name):
    op = OneOperation(values(24, 24))
    assert_close(*embed(host, ROWS[name](op), op, OUTPUTS.get(name)))


@pytest.mark.parametrize("type_name", ["F32", "Q8_0"])
def test_a_matrix_of_one_row_may_be_stored_as_the_row(host, type_name):
    op = OneOperation(values(24, 32))
    op.tensors.add_blocks("w.weight", type_name, 32)
    graph = texts.every_row(op, op.builder.matmul(op.x(), "w", 1))
    assert_close(*embed(host, graph, op))
