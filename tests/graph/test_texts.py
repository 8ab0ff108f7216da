"""Operations within texts on the numpy reference: against the definition, one text and one token at a time."""

import asyncio

import numpy as np
import pytest

from tests.gpu.harness import OneOperation, reference_of
from tests.graph import texts
from tests.graph.texts import ATTENTION, FIRST_ROWS, TEXTS, TOKENS, values


def embed(graph, tensors, lengths=TEXTS, tokens=TOKENS, outputs=None):
    outputs = range(len(tokens)) if outputs is None else outputs
    got = asyncio.run(reference_of(graph, tensors).embed(tokens, 0, outputs, lengths))
    return got.reshape(len(outputs), -1)


@pytest.mark.parametrize("name", ATTENTION)
def test_texts_of_a_batch_do_not_see_each_other(name):
    op = OneOperation(values(24, 12))
    graph = texts.attention(op, ATTENTION[name])
    together = embed(graph, op.tensors)
    alone = [embed(graph, op.tensors, (n,), TOKENS[first:first + n]) for first, n in zip(FIRST_ROWS, TEXTS)]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-5)


def test_each_token_is_the_weighted_mean_of_what_it_sees():
    op = OneOperation(values(24, 12))
    attrs = {"before": 2, "after": 1, "bias": "bias", "buckets": ATTENTION["buckets"]["buckets"]}
    got = embed(texts.attention(op, attrs), op.tensors, (9,), TOKENS[:9])
    x = op.tensors.values("x")[TOKENS[:9]]
    q, k, v = (x @ op.tensors.values(f"{name}.weight").T for name in "qkv")
    bias = op.tensors.values("bias")
    for t in range(9):
        for head in range(6):
            kv = head // 3 * 16
            seen = range(max(0, t - 2), min(9, t + 2))
            scores = [q[t, head * 16:head * 16 + 16] @ k[s, kv:kv + 16] / 16 + bias[attrs["buckets"][s - t + 4], head]
                      for s in seen]
            weights = np.exp(scores) / np.exp(scores).sum()
            expected = sum(w * v[s, kv:kv + 16] for w, s in zip(weights, seen))
            np.testing.assert_allclose(got[t, head * 16:head * 16 + 16], expected, atol=1e-5)


def test_the_mean_is_over_the_text_of_each_output():
    op = OneOperation(values(24, 24))
    got = embed(texts.mean(op), op.tensors, outputs=[17, 0, 5])
    x = op.tensors.values("x")[TOKENS]
    np.testing.assert_allclose(got, [x[15:18].mean(0), x[:5].mean(0), x[5]], atol=1e-6)


def test_positions_begin_anew_with_each_text():
    op = OneOperation(values(24, 24))
    got = embed(texts.positions_and_first(op), op.tensors)
    positions = [i for n in TEXTS for i in range(n)]
    expected = op.tensors.values("x")[TOKENS] + op.tensors.values("positions")[positions] + op.tensors.values("types")[0]
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_a_matrix_of_one_row_may_be_stored_as_the_row():
    op = OneOperation(values(24, 24))
    op.tensors.add_floats("w.weight", values(1, 24)[0])
    graph = texts.every_row(op, op.builder.matmul(op.x(), "w", 1))
    np.testing.assert_allclose(embed(graph, op.tensors), op.tensors.values("x")[TOKENS] @ values(1, 24).T, atol=1e-5)
