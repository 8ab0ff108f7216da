"""Mixtures of experts: who is chosen, what they compute, and the sum of it."""

from __future__ import annotations

import numpy as np

F32 = np.float32


def _route(state, batch, inputs, weights, attrs):
    n_used = attrs["n_used"]
    shifted = np.exp(inputs[0] - inputs[0].max(axis=-1, keepdims=True))
    probabilities = shifted / shifted.sum(axis=-1, keepdims=True)
    ids = np.argsort(-probabilities, axis=-1, kind="stable")[:, :n_used]
    chosen = np.take_along_axis(probabilities, ids, axis=-1)
    if attrs["normalise"]:
        chosen = chosen / chosen.sum(axis=-1, keepdims=True)
    return np.concatenate([ids.astype(F32), chosen], axis=-1)


def _matmul_experts(state, batch, inputs, weights, attrs):
    x, route, n_used = inputs[0], inputs[1], attrs["n_used"]
    parts = x.reshape(len(x), n_used, -1) if attrs["per_expert"] else np.repeat(x[:, None], n_used, axis=1)
    ids = route[:, :n_used].astype(np.int64)
    return np.stack([[weights[0][expert] @ part for expert, part in zip(*row)] for row in zip(ids, parts)]
                    ).reshape(len(x), -1)


def _combine_experts(state, batch, inputs, weights, attrs):
    n_used = attrs["n_used"]
    parts = inputs[0].reshape(len(inputs[0]), n_used, -1)
    return np.einsum("ten,te->tn", parts, inputs[1][:, n_used:])


OPERATIONS = {"route": _route, "matmul_experts": _matmul_experts, "combine_experts": _combine_experts}
