"""Rotation by position, and attention over the cache."""

from __future__ import annotations

import numpy as np

F32 = np.float32


def _rope(state, batch, inputs, weights, attrs):
    x, n_rot = inputs[0], attrs["n_rot"]
    heads = x.reshape(len(x), -1, attrs["head_dim"]).copy()
    table = batch.tables[attrs["table"]][:, None]
    cos, sin = table[..., 0], table[..., 1]
    if attrs["style"] == "norm":
        first, second = slice(0, n_rot, 2), slice(1, n_rot, 2)
    else:
        first, second = slice(0, n_rot // 2), slice(n_rot // 2, n_rot)
    a, b = heads[..., first].copy(), heads[..., second].copy()
    heads[..., first] = a * cos - b * sin
    heads[..., second] = a * sin + b * cos
    return heads.reshape(x.shape)


def _attention(state, batch, inputs, weights, attrs):
    q, n = inputs[0], len(inputs[0])
    k_cache, v_cache = state.k[attrs["layer"]], state.v[attrs["layer"]]
    first, end = max(0, batch.start + 1 - attrs["window"]) if attrs["window"] else 0, batch.start + n
    if len(inputs) == 3:
        k_cache.store(batch.start, inputs[1])
        v_cache.store(batch.start, inputs[2])
    group = attrs["n_head"] // attrs["n_head_kv"]
    queries = q.reshape(n, attrs["n_head_kv"], group, attrs["head_dim"])
    keys = k_cache.load(first, end).reshape(end - first, attrs["n_head_kv"], attrs["head_dim"])
    values = v_cache.load(first, end).reshape(end - first, attrs["n_head_kv"], attrs["head_dim_v"])
    scores = np.einsum("tkgd,skd->kgts", queries, keys, optimize=True) * F32(attrs["scale"])
    if attrs["softcap"]:
        scores = F32(attrs["softcap"]) * np.tanh(scores / F32(attrs["softcap"]))
    at = np.arange(batch.start, end)[:, None]
    seen = np.arange(first, end)[None]
    hidden = seen > at
    if attrs["window"]:
        hidden |= seen <= at - attrs["window"]
    scores = np.where(hidden, F32(-np.inf), scores)
    highest, sinks = scores.max(axis=-1, keepdims=True), None
    if weights:
        sinks = weights[0].reshape(attrs["n_head_kv"], group, 1, 1)
        highest = np.maximum(highest, sinks)
    scores = np.exp(scores - highest)
    total = scores.sum(axis=-1, keepdims=True)
    scores /= total if sinks is None else total + np.exp(sinks - highest)
    return np.einsum("kgts,skd->tkgd", scores, values, optimize=True).reshape(n, -1)


def _scale_by_position(state, batch, inputs, weights, attrs):
    factors = 1.0 + attrs["scale"] * np.log(batch.positions // attrs["period"] + 1.0)
    return inputs[0] * factors[:, None].astype(F32)


OPERATIONS = {"rope": _rope, "attention": _attention, "scale_by_position": _scale_by_position}
