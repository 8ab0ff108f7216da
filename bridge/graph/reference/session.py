"""The numpy interpreter of graphs: float32 throughout, slow, and the truth that the backends are tested against.

It runs the graph itself, not the plan, so it also checks the lowering. It is not a product backend: it holds every weight
decoded to float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bridge.graph.graph import Graph, Node
from bridge.graph.reference import attention, dense, experts
from bridge.graph.rope import rope_rows

F32 = np.float32

OPERATIONS = {**dense.OPERATIONS, **attention.OPERATIONS, **experts.OPERATIONS}
"""Each gets (session, batch, input values, weights, attributes) and returns the value [rows, width]."""


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
        self.k = [np.zeros((n_ctx, layer.k_width), kv_dtype) for layer in graph.kv_layers]
        self.v = [np.zeros((n_ctx, layer.v_width), kv_dtype) for layer in graph.kv_layers]
        self._angles = {
            key: table.frequencies(weights[table.factors_tensor] if table.factors_tensor else None)
            for key, table in graph.rope_tables.items()
        }

    async def evaluate(self, tokens: Sequence[int], start: int, outputs: Sequence[int]) -> np.ndarray | None:
        logits = self.trace(tokens, start, outputs)[self.graph.output]
        return logits.reshape(-1) if outputs else None

    def trace(self, tokens: Sequence[int], start: int, outputs: Sequence[int]) -> dict[Node, np.ndarray]:
        """Every node's value [rows, width] for one batch: for comparing a backend layer by layer."""
        batch = Batch(tokens, start, outputs, {
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
        return [cache for layer in zip(self.k, self.v) for cache in layer]

    async def close(self) -> None:
        self._weights, self.k, self.v = {}, [], []


class Batch:
    def __init__(self, tokens: Sequence[int], start: int, outputs: Sequence[int], tables: Mapping[str, np.ndarray]) -> None:
        self.tokens = np.asarray(tokens, np.int64)
        self.start = start
        self.outputs = np.asarray(outputs, np.int64)
        self.tables = tables
