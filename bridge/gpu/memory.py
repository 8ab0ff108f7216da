"""How large each buffer of a session is; what the estimate of a load adds up, and what a session makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bridge.gpu.calls import Operand, quads
from bridge.gpu.selection import BUFFER_WORDS, MAX_NBYTES, READBACK_WORDS
from bridge.gpu.steps.attention import partials_of, splits_of
from bridge.gpu.tuning import Tuning
from bridge.gpu.weights import Placement
from bridge.graph.cache import CacheLayout
from bridge.graph.graph import LOGITS, TOKENS
from bridge.graph.states import COPIES
from bridge.plan.batch import BatchLayout
from bridge.plan.plan import Plan

FLOAT_BYTES = 4
ROW_MULTIPLE = 8
"""Slots have a whole number of tiles of rows, so that a tile at the end of a batch reads memory of its own slot."""


@dataclass(frozen=True)
class Memory:
    """Bytes of the buffers of a plan: by what they hold, the parameter block, and what each result is read through.

    Only ``cache``, keys and values and recurrent states, may grow with the context. ``selection`` is what looking through
    logits takes (bridge.gpu.selection). The constants of the kernel calls, a few hundred bytes each, are not among them.
    ``partials`` are what attention merges in contexts that are long enough (bridge.gpu.steps.attention).
    """

    weights: Mapping[Operand, int]
    cache: Mapping[Operand, int]
    slots: Mapping[Operand, int]
    partials: Mapping[Operand, int]
    selection: Mapping[Operand, int]
    params: int
    readbacks: Mapping[str, int]

    @property
    def buffers(self) -> dict[Operand, int]:
        """All that kernels bind but the parameter block."""
        return {**self.weights, **self.slots, **self.partials, **self.selection, **self.cache}

    @property
    def weights_nbytes(self) -> int:
        return sum(self.weights.values())

    @property
    def cache_nbytes(self) -> int:
        return sum(self.cache.values())

    @property
    def scratch_nbytes(self) -> int:
        return sum(sum(part.values()) for part in (self.slots, self.partials, self.selection, self.readbacks)) + self.params

    @property
    def nbytes(self) -> int:
        return self.weights_nbytes + self.cache_nbytes + self.scratch_nbytes


def memory_of(plan: Plan, placement: Placement, cache: CacheLayout, tuning: Tuning, *, n_ubatch: int,
              max_outputs: int) -> Memory:
    """The buffers for batches of ``n_ubatch`` tokens and ``max_outputs`` rows of results."""
    weights = {Operand("matrix", name, i): part.buffer_nbytes
               for name, matrix in placement.matrices.items() for i, part in enumerate(matrix.parts)}
    weights |= {Operand("vector", name): 16 * quads(size) for name, size in placement.vector_sizes.items()}
    caches = {Operand(part.kind, part.layer): part.nbytes for part in cache.parts}
    caches |= {Operand("state", i): COPIES * FLOAT_BYTES * width for i, width in enumerate(plan.states)}
    slots = {}
    for i, slot in enumerate(plan.slots):
        rows = n_ubatch if slot.rows == TOKENS else max_outputs
        slots[Operand("slot", i)] = -(-rows // ROW_MULTIPLE) * ROW_MULTIPLE * 16 * quads(slot.width)
    partials = {(operand := partials_of(step, n)): operand.key for step in plan.steps if step.kernel == "attention"
                for n in splits_of(step, tuning, cache)}
    readbacks = {name: FLOAT_BYTES * result.width * max_outputs for name, result in plan.results.items()}
    params, selection = BatchLayout(plan).nbytes(n_ubatch, max_outputs), {}
    if LOGITS in plan.results:
        selection = {Operand("selection", name): FLOAT_BYTES * n_words for name, n_words in BUFFER_WORDS.items()}
        readbacks |= {name: FLOAT_BYTES * n_words for name, n_words in READBACK_WORDS.items()}
        params += MAX_NBYTES
    return Memory(weights, caches, slots, partials, selection, params, readbacks)
