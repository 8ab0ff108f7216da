"""The numpy interpreter of graphs: float32 throughout, slow, and the truth that the backends are tested against.

It runs the graph itself, not the plan, so it also checks the lowering. It is not a product backend: it holds every weight
decoded to float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bridge.graph.cache import CacheLayout, CacheReach, cache_types
from bridge.graph.graph import EMBEDDINGS, LOGITS, OUTPUTS, Graph, Node
from bridge.graph.reference import attention, dense, experts, recurrent, texts
from bridge.graph.reference.cache import ReferenceCache
from bridge.graph.rope import rope_rows
from bridge.graph.states import COPIES, StateCopies

F32 = np.float32

OPERATIONS = {**dense.OPERATIONS, **attention.OPERATIONS, **experts.OPERATIONS, **recurrent.OPERATIONS, **texts.OPERATIONS}
"""Each gets (session, batch, input values, weights, attributes) and returns the value [rows, width]."""


class ReferenceSession:
    """A session (see bridge.runtime.backend) over numpy arrays.

    ``weights`` maps tensor names to float32 arrays of the graph's shapes; ``kv_type`` as in bridge.graph.cache.
    """

    N_UBATCH = 512
    name = "reference"
    adapter: Mapping[str, str] = {}

    def __init__(self, graph: Graph, weights: Mapping[str, np.ndarray], *, n_ctx: int, n_ubatch: int = N_UBATCH,
                 kv_type: str = "f16") -> None:
        self.graph, self.n_ctx, self.n_ubatch, self.max_outputs = graph, n_ctx, n_ubatch, n_ubatch
        self.notes: list[str] = []
        self._weights = weights
        self.cache = CacheLayout(graph.kv_layers, n_ctx, n_ubatch, *cache_types(kv_type))
        self.reach = CacheReach(self.cache.margin)
        self._caches = [ReferenceCache(part) for part in self.cache.parts]
        self.k, self.v = self._caches[::2], self._caches[1::2]
        self.states = StateCopies(bool(graph.states))
        self.states_of = [np.zeros((COPIES, width), F32) for width in graph.states]
        self._angles = {
            key: table.frequencies(weights[table.factors_tensor] if table.factors_tensor else None)
            for key, table in graph.rope_tables.items()
        }

    async def evaluate(self, tokens: Sequence[int], start: int, outputs: Sequence[int],
                       selection: Any = None) -> np.ndarray | None:
        values = self.trace(tokens, start, outputs)
        return values[self.graph.results[LOGITS]].reshape(-1) if outputs else None

    def interrupt(self) -> None:
        """Batches are run to their end."""

    def tokens_ahead(self, selection: Any) -> int:
        return 1

    async def embed(self, tokens: Sequence[int], start: int, outputs: Sequence[int],
                    texts: Sequence[int] = ()) -> np.ndarray | None:
        values = self.trace(tokens, start, outputs, texts)
        return values[self.graph.results[EMBEDDINGS]].reshape(-1) if outputs else None

    def trace(self, tokens: Sequence[int], start: int, outputs: Sequence[int],
              texts: Sequence[int] = ()) -> dict[Node, np.ndarray]:
        """Every node's value [rows, width] for one batch, if it has rows: for comparing a backend layer by layer."""
        tables = {}
        for key, angles in self._angles.items():
            rows = [np.frombuffer(rope_rows(*angles, start, n), F32) for n in texts or (len(tokens),)]
            tables[key] = np.concatenate(rows).reshape(len(tokens), -1, 2)
        self.reach.begin(start)
        copies = self.states.begin(start)
        batch = Batch(tokens, start, outputs, tables, texts, copies)
        values: dict[Node, np.ndarray] = {}
        for node in self.graph.nodes:
            if node.rows == OUTPUTS and not outputs:
                continue
            inputs = [values[source] for source in node.inputs]
            weights = [self._weights[w.name].reshape(w.shape) for w in node.weights]
            values[node] = OPERATIONS[node.op](self, batch, inputs, weights, node.attrs)
        self.states.end(copies[1], start + len(tokens))
        self.reach.end(start + len(tokens))
        return values

    @property
    def state_nbytes(self) -> int:
        return sum(copies[0].nbytes for copies in self.states_of)

    async def read_kv(self, n_tokens: int) -> bytes:
        if not n_tokens:
            return b""
        copy = self.states.holding(n_tokens) if self.states.is_recurrent else 0
        rows = [cache.bytes[first:first + count] for cache in self._caches for first, count in cache.part.saved(n_tokens)]
        return b"".join(part.tobytes() for part in (*rows, *(copies[copy] for copies in self.states_of)))

    async def write_kv(self, data: bytes, n_tokens: int, earliest: int = 0) -> None:
        start = 0
        for cache in self._caches:
            for first, count in cache.part.saved(n_tokens):
                rows = np.frombuffer(data, np.uint8, count * cache.part.row_nbytes, start)
                cache.bytes[first:first + count] = rows.reshape(count, -1)
                start += rows.nbytes
        for copies in self.states_of if n_tokens else ():
            copies[0] = np.frombuffer(data, F32, copies.shape[1], start)
            start += copies[0].nbytes
        self.states.restore(n_tokens)
        self.reach.restore(n_tokens, earliest)

    async def close(self) -> None:
        self._weights, self._caches, self.k, self.v, self.states_of = {}, [], [], [], []


class Batch:
    """``texts`` are the lengths of the texts that the tokens make up, () for a single one; each begins at ``start``."""

    def __init__(self, tokens: Sequence[int], start: int, outputs: Sequence[int], tables: Mapping[str, np.ndarray],
                 texts: Sequence[int] = (), copies: tuple[int, int] = (0, 0)) -> None:
        self.tokens = np.asarray(tokens, np.int64)
        self.start = start
        self.outputs = np.asarray(outputs, np.int64)
        self.tables = tables
        self.copies = copies
        ends = np.cumsum(texts or (len(tokens),))
        lengths = np.diff(ends, prepend=0)
        self.text_first = np.repeat(ends - lengths, lengths)
        self.text_end = np.repeat(ends, lengths)

    @property
    def positions(self) -> np.ndarray:
        return self.start + np.arange(len(self.tokens)) - self.text_first
