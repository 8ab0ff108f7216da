"""Recurrences: what carries a state from each token to the next, one token at a time."""

from __future__ import annotations

import numpy as np

from bridge.graph.reference.dense import ACTIVATIONS

F32 = np.float32


def _state(session, batch, attrs, *shape):
    """The state before the batch, and where to put the one after it."""
    copies = session.states_of[attrs["state"]]
    read, write = batch.copies
    before = np.zeros(shape, F32) if batch.start == 0 else copies[read].reshape(shape).copy()
    return before, copies[write].reshape(shape)


def _token_shift(session, batch, inputs, weights, attrs):
    x = inputs[0]
    before, after = _state(session, batch, attrs, 1, x.shape[1])
    rows = np.concatenate([before, x])
    after[:] = rows[-1:]
    mix = weights[0].reshape(-1, x.shape[1])
    return (x[:, None] + (rows[:-1] - x)[:, None] * mix).reshape(len(x), -1)


def _conv(session, batch, inputs, weights, attrs):
    x, taps = inputs[0], attrs["taps"]
    before, after = _state(session, batch, attrs, taps - 1, x.shape[1])
    rows = np.concatenate([before, x])
    after[:] = rows[-(taps - 1):]
    weight = weights[0].reshape(x.shape[1], taps)
    return sum((rows[i:i + len(x)] * weight[:, i] for i in range(taps)), weights[1] if len(weights) > 1 else F32(0))


def _selective_scan(session, batch, inputs, weights, attrs):
    (x, dt, bc), (a, d), n_head, d_state = inputs, weights, attrs["n_head"], attrs["d_state"]
    state, after = _state(session, batch, attrs, d_state, n_head, x.shape[1] // n_head)
    step = ACTIVATIONS["softplus"](dt)
    of_heads = [np.repeat(part, n_head // attrs["n_group"], axis=1)  # [T, n_head, d_state]
                for part in np.moveaxis(bc.reshape(len(x), 2, attrs["n_group"], d_state), 1, 0)]
    a, y = a.reshape(n_head, -1).T[:, :, None], np.empty_like(x)
    for t, row in enumerate(x.reshape(len(x), n_head, -1)):
        b, c = (part[t].T[:, :, None] for part in of_heads)  # [d_state, n_head, 1]
        state = np.exp(step[t][:, None] * a) * state + step[t][:, None] * row * b
        y[t] = ((c * state).sum(axis=0) + d.reshape(-1, 1) * row).reshape(-1)
    after[:] = state
    return y


def _gated_delta(session, batch, inputs, weights, attrs):
    n, n_head, n_head_k = len(inputs[0]), attrs["n_head"], attrs["n_head_k"]
    state, after = _state(session, batch, attrs, n_head, attrs["head_dim"], attrs["head_dim_v"])
    heads = np.arange(n_head)
    of_key = heads % n_head_k if attrs["interleaved"] else heads * n_head_k // n_head
    q, k = (part.reshape(n, n_head_k, -1)[:, of_key] for part in inputs[:2])
    v, (gate, beta) = inputs[2].reshape(n, n_head, -1), inputs[3:]
    y = np.empty_like(v)
    for t in range(n):
        state *= np.exp(gate[t])[:, None, None]
        change = (v[t] - np.einsum("hk,hkv->hv", k[t], state)) * beta[t][:, None]
        state += k[t][:, :, None] * change[:, None]
        y[t] = np.einsum("hk,hkv->hv", q[t], state) * F32(attrs["scale"])
    after[:] = state
    return y.reshape(n, -1)


def _wkv7(session, batch, inputs, weights, attrs):
    n, head_dim = len(inputs[0]), attrs["head_dim"]
    r, w, k, v = (part.reshape(n, -1, head_dim) for part in inputs[:4])
    a, b = np.moveaxis(inputs[4].reshape(n, 2, -1, head_dim), 1, 0)
    state, after = _state(session, batch, attrs, v.shape[1], head_dim, head_dim)  # [head, column, row]
    y = np.empty_like(v)
    for t in range(n):
        removed = np.einsum("hjr,hj->hr", state, a[t])
        state = state * w[t][:, :, None] + b[t][:, :, None] * removed[:, None] + k[t][:, :, None] * v[t][:, None]
        y[t] = np.einsum("hjr,hj->hr", state, r[t])
    after[:] = state
    return y.reshape(n, -1)


OPERATIONS = {
    "token_shift": _token_shift,
    "conv": _conv,
    "selective_scan": _selective_scan,
    "gated_delta": _gated_delta,
    "wkv7": _wkv7,
}
