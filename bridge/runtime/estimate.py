"""How much memory a model will take, told from its header alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bridge.gguf import open_gguf_async
from bridge.graph.cache import CacheLayout, cache_types
from bridge.graph.graph import TOKENS
from bridge.graph.states import COPIES
from bridge.models import build_graph
from bridge.plan import lower
from bridge.runtime.load import DEFAULT_N_UBATCH, LoadOptions, session_sizes

FLOAT_NBYTES = 4


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes, but for ``n_ctx`` and ``n_ctx_train`` (0: not told). Kernels and the runtime itself are not in it.

    ``weights``: the tensors the model uses; ``cache``: keys and values of the whole context, and recurrent states;
    ``scratch``: activations of a batch.
    """

    architecture: str
    n_ctx: int
    n_ctx_train: int
    file: int | None
    weights: int
    cache: int
    scratch: int

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.scratch


async def estimate_memory(source: Any, options: LoadOptions | None = None) -> MemoryEstimate:
    """Read the header of an async source and add up what a load with these options allocates.

    Raises what a load would raise for the header: FormatError, ModelError, UnsupportedError, SourceError.
    """
    options = options or LoadOptions()
    file = await open_gguf_async(source)
    graph = build_graph(file.metadata, file.tensors, options.n_ctx, options.pooling)
    plan = lower(graph)
    sizes = session_sizes(graph, options, DEFAULT_N_UBATCH)
    cache = CacheLayout(graph.kv_layers, sizes.n_ctx, sizes.n_ubatch, *cache_types(options.kv_type))
    scratch = sum(slot.width * (sizes.n_ubatch if slot.rows == TOKENS else sizes.max_outputs) for slot in plan.slots)
    return MemoryEstimate(
        architecture=file.architecture,
        n_ctx=sizes.n_ctx,
        n_ctx_train=file.metadata.get(f"{file.architecture}.context_length", 0),
        file=source.size,
        weights=sum(file.tensors[name].nbytes for name in graph.weights()),
        cache=cache.nbytes + COPIES * FLOAT_NBYTES * sum(graph.states),
        scratch=FLOAT_NBYTES * scratch,
    )
