"""Operations within whole texts, of which a batch may hold several: attention in both directions, and the mean."""

from __future__ import annotations

import numpy as np

F32 = np.float32


def _text_attention(state, batch, inputs, weights, attrs):
    n, n_head, n_head_kv = len(inputs[0]), attrs["n_head"], attrs["n_head_kv"]
    queries = inputs[0].reshape(n, n_head, -1)
    keys = np.repeat(inputs[1].reshape(n, n_head_kv, -1), n_head // n_head_kv, axis=1)
    values = np.repeat(inputs[2].reshape(n, n_head_kv, -1), n_head // n_head_kv, axis=1)
    scores = np.einsum("qhd,khd->hqk", queries, keys, optimize=True) * F32(attrs["scale"])
    if attrs["softcap"]:
        scores = F32(attrs["softcap"]) * np.tanh(scores / F32(attrs["softcap"]))
    at = np.arange(n)
    distance = at[None] - at[:, None]  # key - query
    if attrs["slopes"]:
        scores = scores - np.array(attrs["slopes"], F32)[:, None, None] * np.abs(distance).astype(F32)
    if weights:
        span = len(attrs["buckets"]) // 2
        bucket = np.array(attrs["buckets"])[np.clip(distance, -span, span) + span]
        scores = scores + weights[0].reshape(-1, n_head)[bucket].transpose(2, 0, 1)
    seen = (at >= batch.text_first[:, None]) & (at < batch.text_end[:, None])
    seen &= (distance >= -attrs["before"]) & (distance <= attrs["after"])
    scores = np.where(seen, scores, F32(-np.inf))
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", scores, values, optimize=True).reshape(n, -1)


def _text_mean(state, batch, inputs, weights, attrs):
    rows = [inputs[0][batch.text_first[i]:batch.text_end[i]].mean(axis=0, dtype=F32) for i in batch.outputs]
    return np.array(rows, F32).reshape(len(rows), inputs[0].shape[1])


OPERATIONS = {"text_attention": _text_attention, "text_mean": _text_mean}
