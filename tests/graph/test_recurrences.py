"""The reference's recurrences against their definitions, written head by head with matrices and in float64."""

import numpy as np
import pytest

from tests.graph.recurrences import conv, gated_delta, selective_scan, token_shift, wkv7
from tests.simd.harness import OneOperation, reference_of

N = 9
RNG = np.random.default_rng(11)


def values_of(graph_of, width, **parameters):
    """The recurrence's node, its inputs and its result, over two batches."""
    op = OneOperation(RNG.standard_normal((N, width)).astype(np.float32))
    graph = graph_of(op, **parameters)
    session = reference_of(graph, op.tensors)
    batches = [session.trace(range(0, 4), 0, range(4)), session.trace(range(4, N), 4, range(N - 4))]
    node = next(node for node in graph.nodes if "state" in node.attrs)
    inputs = [np.concatenate([values[source] for values in batches]).astype(np.float64) for source in node.inputs]
    weights = [op.tensors.values(weight.name).astype(np.float64) for weight in node.weights]
    return node.attrs, inputs, weights, np.concatenate([values[node] for values in batches])


def test_token_shift_mixes_each_row_with_the_one_before():
    _, (x,), (mix,), got = values_of(token_shift, 20)
    for t in range(N):
        before = x[t - 1] if t else np.zeros(20)
        expected = [x[t] + (before - x[t]) * row for row in mix.reshape(3, 20)]
        np.testing.assert_allclose(got[t], np.concatenate(expected), atol=1e-5)


def test_convolution_sees_the_last_taps():
    _, (x,), (weight, bias), got = values_of(conv, 70, bias=True)
    padded = np.concatenate([np.zeros((3, 70)), x])
    for c in range(70):
        np.testing.assert_allclose(got[:, c], np.convolve(padded[:, c], weight[c, ::-1], "valid") + bias[c], atol=1e-4)


@pytest.mark.parametrize("scalar_decay", [True, False])
def test_selective_scan_with_two_groups(scalar_decay):
    attrs, (x, dt, bc), (a, d), got = values_of(selective_scan, 16, scalar_decay=scalar_decay)
    d_state, n_head, n_group = attrs["d_state"], attrs["n_head"], attrs["n_group"]
    a, d = np.broadcast_to(a.reshape(n_head, -1), (n_head, d_state)), d.reshape(-1)
    b, c = (part.reshape(N, n_group, d_state) for part in np.split(bc, 2, axis=1))
    for h in range(n_head):
        group, state = h // (n_head // n_group), np.zeros((d_state, 4))
        for t in range(N):
            row, step = x[t, 4 * h:4 * h + 4], np.log1p(np.exp(dt[t, h]))
            state = np.diag(np.exp(step * a[h])) @ state + step * np.outer(b[t, group], row)
            np.testing.assert_allclose(got[t, 4 * h:4 * h + 4], c[t, group] @ state + d[h] * row, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("interleaved", [True, False])
def test_gated_delta_rule_with_shared_keys(interleaved):
    attrs, (q, k, v, gate, beta), _, got = values_of(gated_delta, 16, interleaved=interleaved)
    n_head, d_k, d_v = attrs["n_head"], attrs["head_dim"], attrs["head_dim_v"]
    key_heads = [0, 1, 0, 1, 0, 1] if interleaved else [0, 0, 0, 1, 1, 1]
    for h in range(n_head):
        at, state = slice(d_k * key_heads[h], d_k * (key_heads[h] + 1)), np.zeros((d_v, d_k))
        for t in range(N):  # S (α (I - β k kᵀ)) + β v kᵀ: Yang et al., arXiv 2412.06464
            key = k[t, at]
            state = np.exp(gate[t, h]) * state @ (np.eye(d_k) - beta[t, h] * np.outer(key, key))
            state += beta[t, h] * np.outer(v[t, d_v * h:d_v * (h + 1)], key)
            np.testing.assert_allclose(got[t, d_v * h:d_v * (h + 1)], 0.25 * state @ q[t, at], rtol=1e-4, atol=1e-4)


def test_wkv7_is_the_generalised_delta_rule():
    attrs, (r, w, k, v, ab), _, got = values_of(wkv7, 16)
    d, (a, b) = attrs["head_dim"], np.split(ab, 2, axis=1)
    for h in range(3):
        at, state = slice(d * h, d * (h + 1)), np.zeros((d, d))
        for t in range(N):  # S (diag(w) + a bᵀ) + v kᵀ: Peng et al., arXiv 2503.14456
            state = state @ (np.diag(w[t, at]) + np.outer(a[t, at], b[t, at])) + np.outer(v[t, at], k[t, at])
            np.testing.assert_allclose(got[t, at], state @ r[t, at], rtol=1e-4, atol=1e-4)
