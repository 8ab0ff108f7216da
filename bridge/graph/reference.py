"""The numpy interpreter of graphs: float32 throughout, slow, and the truth that the backends are tested against.

It runs the graph itself, not the plan, so it also checks the lowering. It is not a product backend: it holds every weight
decoded to float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bridge.graph.graph import Graph, Node
from bridge.graph.rope import rope_rows

F32 = np.float32


class ReferenceSession:
    """A session (see bridge.runtime.backend) over numpy arrays.

    ``weights`` maps tensor names to float32 arrays of the graph's shapes; ``kv_dtype`` is float16 or float32.
    """

    name = "reference"
    adapter: Mapping[str, str] = {}

    def __init__(self, graph: Graph, weights: Mapping[str, np.ndarray], *, n_ctx: int, n_ubatch: int = 512,
                 kv_dtype: Any = np.float16) -> None:
        self.graph, self.n_ctx, self.n_ubatch, self.max_outputs = graph, n_ctx, n_ubatch, n_ubatch
        self.notes: list[str] = []
        self._weights = weights
        self._k = [np.zeros((n_ctx, layer.k_width), kv_dtype) for layer in graph.kv_layers]
        self._v = [np.zeros((n_ctx, layer.v_width), kv_dtype) for layer in graph.kv_layers]
        self._angles = {
            key: table.frequencies(weights[table.factors_tensor] if table.factors_tensor else None)
            for key, table in graph.rope_tables.items()
        }

    async def evaluate(self, tokens: Sequence[int], start: int, outputs: Sequence[int]) -> np.ndarray | None:
        logits = self.trace(tokens, start, outputs)[self.graph.output]
        return logits.reshape(-1) if outputs else None

    def trace(self, tokens: Sequence[int], start: int, outputs: Sequence[int]) -> dict[Node, np.ndarray]:
        """Every node's value [rows, width] for one batch: for comparing a backend layer by layer."""
        batch = _Batch(tokens, start, outputs, {
            key: np.frombuffer(rope_rows(*self._angles[key], start, len(tokens)), F32).reshape(len(tokens), -1, 2)
            for key in self.graph.rope_tables
        })
        values: dict[Node, np.ndarray] = {}
        for node in self.graph.nodes:
            inputs = [values[source] for source in node.inputs]
            weights = [self._weights[w.name] for w in node.weights]
            values[node] = OPERATIONS[node.op](self, batch, inputs, weights, node.attrs)
        return values

    @property
    def kv_row_nbytes(self) -> int:
        return sum(cache[0].nbytes for cache in self._caches())

    async def read_kv(self, n_tokens: int) -> bytes:
        return b"".join(cache[:n_tokens].tobytes() for cache in self._caches())

    async def write_kv(self, data: bytes, n_tokens: int) -> None:
        start = 0
        for cache in self._caches():
            rows = np.frombuffer(data, cache.dtype, n_tokens * cache.shape[1], start)
            cache[:n_tokens] = rows.reshape(n_tokens, -1)
            start += rows.nbytes

    def _caches(self) -> list[np.ndarray]:
        return [cache for layer in zip(self._k, self._v) for cache in layer]

    async def close(self) -> None:
        self._weights, self._k, self._v = {}, [], []


class _Batch:
    def __init__(self, tokens: Sequence[int], start: int, outputs: Sequence[int], tables: Mapping[str, np.ndarray]) -> None:
        self.tokens = np.asarray(tokens, np.int64)
        self.start = start
        self.outputs = np.asarray(outputs, np.int64)
        self.tables = tables


def _embed(session, batch, inputs, weights, attrs):
    return weights[0][batch.tokens] * F32(attrs["scale"])


def _matmul(session, batch, inputs, weights, attrs):
    product = inputs[0] @ weights[0].T
    return product + weights[1] if len(weights) > 1 else product


def _rms_norm(session, batch, inputs, weights, attrs):
    x = inputs[0].reshape(len(inputs[0]), -1, attrs["group"])
    mean = np.mean(np.square(x), axis=-1, keepdims=True, dtype=F32)
    return (x / np.sqrt(mean + F32(attrs["eps"])) * weights[0]).reshape(inputs[0].shape)


def _rope(session, batch, inputs, weights, attrs):
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


def _attention(session, batch, inputs, weights, attrs):
    q, n = inputs[0], len(inputs[0])
    k_cache, v_cache = session._k[attrs["layer"]], session._v[attrs["layer"]]
    end = batch.start + n
    if len(inputs) == 3:
        k_cache[batch.start:end] = inputs[1]
        v_cache[batch.start:end] = inputs[2]
    group = attrs["n_head"] // attrs["n_head_kv"]
    queries = q.reshape(n, attrs["n_head_kv"], group, attrs["head_dim"])
    keys = k_cache[:end].astype(F32).reshape(end, attrs["n_head_kv"], attrs["head_dim"])
    values = v_cache[:end].astype(F32).reshape(end, attrs["n_head_kv"], attrs["head_dim_v"])
    scores = np.einsum("tkgd,skd->kgts", queries, keys, optimize=True) * F32(attrs["scale"])
    if attrs["softcap"]:
        scores = F32(attrs["softcap"]) * np.tanh(scores / F32(attrs["softcap"]))
    at = np.arange(batch.start, end)[:, None]
    seen = np.arange(end)[None]
    hidden = seen > at
    if attrs["window"]:
        hidden |= seen <= at - attrs["window"]
    scores = np.where(hidden, F32(-np.inf), scores)
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    return np.einsum("kgts,skd->tkgd", scores, values, optimize=True).reshape(n, -1)


def _glu(session, batch, inputs, weights, attrs):
    return ACTIVATIONS[attrs["act"]](inputs[0]) * inputs[1]


def _silu(x):
    with np.errstate(over="ignore"):  # exp(-x) may be infinite: x / inf is the right 0
        return x / (1 + np.exp(-x))


def _gelu(x):
    # The tanh form (Hendrycks & Gimpel, arXiv 1606.08415), with sqrt(2/π).
    return F32(0.5) * x * (1 + np.tanh(F32(0.79788456080286535588) * x * (1 + F32(0.044715) * x * x)))


def _route(session, batch, inputs, weights, attrs):
    n_used = attrs["n_used"]
    shifted = np.exp(inputs[0] - inputs[0].max(axis=-1, keepdims=True))
    probabilities = shifted / shifted.sum(axis=-1, keepdims=True)
    ids = np.argsort(-probabilities, axis=-1, kind="stable")[:, :n_used]
    chosen = np.take_along_axis(probabilities, ids, axis=-1)
    if attrs["normalise"]:
        chosen = chosen / chosen.sum(axis=-1, keepdims=True)
    return np.concatenate([ids.astype(F32), chosen], axis=-1)


def _matmul_experts(session, batch, inputs, weights, attrs):
    x, route, n_used = inputs[0], inputs[1], attrs["n_used"]
    parts = x.reshape(len(x), n_used, -1) if attrs["per_expert"] else np.repeat(x[:, None], n_used, axis=1)
    ids = route[:, :n_used].astype(np.int64)
    return np.stack([[weights[0][expert] @ part for expert, part in zip(*row)] for row in zip(ids, parts)]
                    ).reshape(len(x), -1)


def _combine_experts(session, batch, inputs, weights, attrs):
    n_used = attrs["n_used"]
    parts = inputs[0].reshape(len(inputs[0]), n_used, -1)
    return np.einsum("ten,te->tn", parts, inputs[1][:, n_used:])


ACTIVATIONS = {"silu": _silu, "gelu": _gelu}

OPERATIONS = {
    "embed": _embed,
    "matmul": _matmul,
    "rms_norm": _rms_norm,
    "rope": _rope,
    "attention": _attention,
    "glu": _glu,
    "route": _route,
    "matmul_experts": _matmul_experts,
    "combine_experts": _combine_experts,
    "add": lambda session, batch, inputs, weights, attrs: inputs[0] + inputs[1],
    "scale": lambda session, batch, inputs, weights, attrs: inputs[0] * F32(attrs["scale"]),
    "softcap": lambda session, batch, inputs, weights, attrs: (
        F32(attrs["cap"]) * np.tanh(inputs[0] / F32(attrs["cap"]))),
    "select_outputs": lambda session, batch, inputs, weights, attrs: inputs[0][batch.outputs],
}
