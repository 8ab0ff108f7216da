"""Where everything lies in the one memory, known from the header alone: a model that does not fit is refused before a
byte of its weights is fetched.

From the bottom: the module's own data, the threads' stacks, the program, the parameters, staging for the upload,
scratch for each thread, weights, kv cache, slots, packed activations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from bridge.errors import InputError
from bridge.graph.cache import CacheLayout
from bridge.graph.graph import TOKENS
from bridge.graph.states import COPIES
from bridge.plan.batch import words_before_tables
from bridge.plan.plan import Plan
from bridge.simd.formats import ROWS, Format
from bridge.simd.host import MAX_BYTES_32, MAX_SELECTED, PAGE, UNIT, first_free_byte
from bridge.simd.ops import TILE, Op, Packed, Region, stride
from bridge.simd.program import RECORD_BYTES

ALIGNMENT = 64
STAGING_BYTES = 1 << 20
MAX_QUERIES, KEYS = 16, 32
"""Of one item of attention (kernels/simd/attention.c)."""
STATE_COLUMNS = 16
"""Of one item of a recurrence (kernels/simd/recurrent.c)."""


@dataclass(frozen=True)
class Area:
    """A run of bytes outside the regions that operations name."""

    address: int
    nbytes: int

    @property
    def unit(self) -> int:
        return self.address // UNIT


@dataclass(frozen=True)
class MemoryMap:
    """Addresses in bytes. ``weights_nbytes`` and ``cache_nbytes`` are parts of ``nbytes``, all of it."""

    programs: Mapping[str, Area]
    mail: Area
    params: Area
    staging: Area
    scratch: Area
    scratch_units: int
    selected: Area
    regions: Mapping[Region, Area]
    nbytes: int
    weights_nbytes: int
    cache_nbytes: int


class _Allocator:
    def __init__(self, start: int) -> None:
        self.end = start

    def take(self, nbytes: int) -> Area:
        area = Area(self.end, nbytes)
        self.end = -(-(self.end + nbytes) // ALIGNMENT) * ALIGNMENT
        return area


def plan_memory(plan: Plan, ops: Mapping[str, Sequence[Op]], formats: Mapping[str, Format], packed: Mapping[Region, Packed],
                grids: Mapping[str, int], *, cache: CacheLayout, n_ubatch: int, max_outputs: int, host_threads: int,
                n_threads: int) -> MemoryMap:
    """Lay out the memory of one model, computed by ``n_threads`` of the host's.

    ``ops`` are those for each result; ``grids`` has the bytes of each grid.
    """
    taken = _Allocator(first_free_byte(host_threads))
    weights = {w.name: w for w in plan.weights().values()}
    row_nbytes = [_row_nbytes(formats[w.name], w.shape[-1]) for w in weights.values()]
    programs = {result: taken.take(RECORD_BYTES * len(program)) for result, program in ops.items()}
    mail, params = (taken.take(4 * words_before_tables(n_ubatch, max_outputs)) for _ in range(2))
    staging = taken.take(max(STAGING_BYTES, ROWS * max(row_nbytes)))
    scratch_units = _scratch_nbytes(plan) // UNIT
    scratch = taken.take(scratch_units * UNIT * n_threads)
    selected = taken.take(8 * MAX_SELECTED)
    regions = {Region("grid", name): taken.take(nbytes) for name, nbytes in grids.items()}
    regions |= {region: taken.take(4 * len(region.key)) for region in constants_of(ops)}

    start = taken.end
    for name, weight in weights.items():
        if len(weight.shape) == 1:
            regions[Region("vector", name)] = taken.take(4 * stride(weight.shape[0]))
        else:
            n_groups = -(-prod(weight.shape[:-1]) // ROWS)
            size = formats[name].layout.group_nbytes(weight.shape[-1])
            regions[Region("matrix", name)] = taken.take(n_groups * size)
    for key, table in plan.rope_tables.items():
        if table.factors_tensor:
            regions[Region("vector", table.factors_tensor)] = taken.take(4 * stride(table.n_rot // 2))
        regions[Region("angles", key)] = taken.take(8 * (table.n_rot // 2))
        regions[Region("table", key)] = taken.take(4 * n_ubatch * table.n_rot)
    weights_nbytes, start = taken.end - start, taken.end
    for part in cache.parts:
        regions[Region(part.kind, part.layer)] = taken.take(part.nbytes)
    for i, width in enumerate(plan.states):
        regions[Region("state", i)] = taken.take(4 * COPIES * width)
    cache_nbytes = taken.end - start

    rows = [n_ubatch if slot.rows == TOKENS else max_outputs for slot in plan.slots]
    for i, slot in enumerate(plan.slots):
        regions[Region("slot", i)] = taken.take(4 * rows[i] * stride(slot.width))
    for region, pack in packed.items():
        n_rows = -(-rows[pack.slot] * pack.rows // TILE) * TILE
        regions[region] = taken.take(n_rows * pack.n_in // 32 * ((64 if pack.wide else 32) + 16))
    return MemoryMap(programs, mail, params, staging, scratch, scratch_units, selected, regions,
                     -(-taken.end // PAGE) * PAGE, weights_nbytes, cache_nbytes)


def check_fits(memory: MemoryMap, most: int, n_ctx: int) -> None:
    """Raise InputError when the memory is larger than ``most`` bytes."""
    if memory.nbytes <= most:
        return
    rest = memory.nbytes - memory.weights_nbytes - memory.cache_nbytes
    raise InputError(
        f"the model needs {_mib(memory.nbytes)} of memory ({_mib(memory.weights_nbytes)} for weights, "
        f"{_mib(memory.cache_nbytes)} for a context of {n_ctx} tokens, {_mib(rest)} to compute in); "
        f"the CPU backend can have at most {_mib(most)} here"
        + ("; the wasm32 core addresses at most 4 GiB; memory64 is required" if most == MAX_BYTES_32 else "")
    )


def constants_of(ops: Mapping[str, Sequence[Op]]) -> list[Region]:
    """The numbers that operations read as they are: regions of the kind "constant", whose key is the numbers."""
    arguments = (argument for program in ops.values() for op in program for argument in op.args)
    return list(dict.fromkeys(a for a in arguments if isinstance(a, Region) and a.kind == "constant"))


def _mib(nbytes: int) -> str:
    return f"{-(-nbytes // (1 << 20))} MiB"


def _row_nbytes(format: Format, n_in: int) -> int:
    return -(-n_in // format.type.block_size) * format.type.type_size


def _scratch_nbytes(plan: Plan) -> int:
    """What one thread needs at most: a group of weights as float32 (codes take less), or an item of attention
    or of a recurrence."""
    widest = max((step.weights[0].shape[-1] for step in plan.steps
                  if step.kernel in ("embed", "matmul", "matmul_experts", "matmul_heads")), default=0)
    nbytes = 4 * ROWS * widest
    for step in plan.steps:
        if step.kernel in ("attention", "text_attention"):
            dim, dim_v = stride(step.attrs["head_dim"]), stride(step.attrs["head_dim_v"])
            nbytes = max(nbytes, 4 * (MAX_QUERIES * (dim + KEYS + dim_v) + KEYS * (dim + dim_v)))
        elif step.kernel in ("selective_scan", "gated_delta", "wkv7"):
            rows = 2 * step.attrs["d_state"] if step.kernel == "selective_scan" else step.attrs["head_dim"]
            nbytes = max(nbytes, 4 * STATE_COLUMNS * rows)
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
