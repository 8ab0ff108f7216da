"""Mixtures of experts: who is chosen, what they compute, and the sum of it."""

from __future__ import annotations

import numpy as np

F32 = np.float32
SMALLEST_SUM = F32(2.0**-14)  # llama.cpp's bound, the smallest normal half


def _route(state, batch, inputs, weights, attrs):
    n_used, weights = attrs["n_used"], list(weights)
    if attrs["gate"] == "sigmoid":
        probabilities = 1 / (1 + np.exp(-inputs[0]))
    else:
        shifted = np.exp(inputs[0] - inputs[0].max(axis=-1, keepdims=True))
        probabilities = shifted / shifted.sum(axis=-1, keepdims=True)
    scores = probabilities + weights.pop(0) if attrs["biased"] else probabilities
    if attrs["n_group"] > 1:
        groups = scores.reshape(len(scores), attrs["n_group"], -1)
        worth = np.sort(groups, axis=-1)[:, :, -2:].sum(axis=-1)
        dropped = np.argsort(-worth, axis=-1, kind="stable")[:, attrs["n_group_used"]:]
        groups = groups.copy()
        np.put_along_axis(groups, dropped[:, :, None], -np.inf, axis=1)
        scores = groups.reshape(scores.shape)
    ids = np.argsort(-scores, axis=-1, kind="stable")[:, :n_used]
    chosen = np.take_along_axis(probabilities, ids, axis=-1)
    if attrs["normalise"]:
        chosen = chosen / np.maximum(chosen.sum(axis=-1, keepdims=True), SMALLEST_SUM)
    chosen = chosen * F32(attrs["scale"])
    if attrs["scaled"]:
        chosen = chosen * weights.pop(0)[ids]
    return np.concatenate([ids.astype(F32), chosen], axis=-1)


def _matmul_experts(state, batch, inputs, weights, attrs):
    x, route, n_used = inputs[0], inputs[1], attrs["n_used"]
    parts = x.reshape(len(x), n_used, -1) if attrs["per_expert"] else np.repeat(x[:, None], n_used, axis=1)
    ids = route[:, :n_used].astype(np.int64)
    products = np.stack([[weights[0][expert] @ part for expert, part in zip(*row)] for row in zip(ids, parts)])
    if len(weights) > 1:
        products = products + weights[1].reshape(len(weights[0]), -1)[ids]
    return products.reshape(len(x), -1)


def _matmul_heads(state, batch, inputs, weights, attrs):
    heads = inputs[0].reshape(len(inputs[0]), len(weights[0]), -1)
    return np.einsum("thi,hoi->tho", heads, weights[0], optimize=True).reshape(len(heads), -1)


def _combine_experts(state, batch, inputs, weights, attrs):
    n_used = attrs["n_used"]
    parts = inputs[0].reshape(len(inputs[0]), n_used, -1)
    return np.einsum("ten,te->tn", parts, inputs[1][:, n_used:])


OPERATIONS = {
    "route": _route,
    "matmul_experts": _matmul_experts,
    "matmul_heads": _matmul_heads,
    "combine_experts": _combine_experts,
}
