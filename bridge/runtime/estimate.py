"""How much memory a model will take, told from its header alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bridge.gguf import open_gguf_async
from bridge.graph.cache import CacheLayout, cache_types
from bridge.graph.graph import Graph
from bridge.graph.states import COPIES
from bridge.models import build_graph
from bridge.plan import Plan, lower
from bridge.runtime.load import DEFAULT_N_UBATCH, LoadOptions, SessionSizes, possible_cache, session_sizes

FLOAT_NBYTES = 4
THREADS = 4
"""Threads of the CPU backend, each with some memory of its own, where the options name no number."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes, but for ``n_ctx`` and ``n_ctx_train`` (0: not told). Kernels and the runtime itself are not in it.

    For the backend of the options, or WebGPU where that is chosen later.

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
    sizes = session_sizes(graph, options, DEFAULT_N_UBATCH)
    cache = CacheLayout(graph.kv_layers, sizes.n_ctx, sizes.n_ubatch, *cache_types(possible_cache(options.kv_type, graph)))
    if options.backend == "simd":
        weights, scratch = _on_the_cpu(lower(graph), cache, sizes, options.threads or THREADS)
    else:
        weights, scratch = _on_webgpu(graph, cache, sizes)
    return MemoryEstimate(
        architecture=file.architecture,
        n_ctx=sizes.n_ctx,
        n_ctx_train=file.metadata.get(f"{file.architecture}.context_length", 0),
        file=source.size,
        weights=weights,
        cache=cache.nbytes + COPIES * FLOAT_NBYTES * sum(graph.states),
        scratch=scratch,
    )


def _on_webgpu(graph: Graph, cache: CacheLayout, sizes: SessionSizes) -> tuple[int, int]:
    """Bytes of weights and scratch: what bridge.gpu.session makes buffers for."""
    from bridge.gpu.device import Limits
    from bridge.gpu.memory import memory_of
    from bridge.gpu.tuning import HARDWARE
    from bridge.gpu.weights import place_weights

    plan, limits = lower(graph, HARDWARE.rules), Limits()
    memory = memory_of(plan, place_weights(plan, limits), cache, HARDWARE, n_ubatch=sizes.n_ubatch,
                       max_outputs=sizes.max_outputs)
    return memory.weights_nbytes, memory.scratch_nbytes + limits.min_uniform_buffer_offset_alignment * len(plan.steps)


def _on_the_cpu(plan: Plan, cache: CacheLayout, sizes: SessionSizes, threads: int) -> tuple[int, int]:
    """Bytes of weights and scratch in the memory that bridge.simd.session lays out."""
    from bridge.simd.memory import plan_memory
    from bridge.simd.steps import programs_of
    from bridge.simd.weights import grids_of

    made = programs_of(plan, cache=cache, exact=False, has_relaxed=True, dot_mode=0)
    grids = {name: len(data) for name, data in grids_of(made.formats).items()}
    memory = plan_memory(plan, made.ops, made.formats, made.packed, grids, cache=cache, n_ubatch=sizes.n_ubatch,
                         max_outputs=sizes.max_outputs, host_threads=threads, n_threads=threads)
    return memory.weights_nbytes, memory.nbytes - memory.weights_nbytes - memory.cache_nbytes
