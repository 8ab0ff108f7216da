"""Operations of the kernels: which one, with which regions of memory, touched how; bridge.simd.steps makes them of
steps.

Those two are the only places that know both the plan's vocabulary and the kernels' arguments (the structs in
kernels/simd/*.c, in the same order). Nothing here knows an address. Rows of every slot begin at a multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bridge.errors import UnsupportedError
from bridge.graph.cache import CacheLayout
from bridge.graph.graph import TOKENS, Weight
from bridge.graph.rope import RopeTable
from bridge.plan.plan import Plan, Step
from bridge.simd.formats import Format, format_of
from bridge.simd.host import DOTS_SATURATE

VECTOR_TYPES = ("F32", "F16", "BF16")
WIDE_CODES = ("Q8_0", "IQ4_NL", "IQ4_XS", "WIDE8")
"""Layouts whose codes are signed bytes: computed with 16-bit activations where relaxed dot products saturate."""
TILE = 4
"""Rows of activations that meet a weight together (kernels/simd/activations.h)."""


class Region(NamedTuple):
    """A piece of memory by what it holds: kind "slot", "packed", "matrix", "vector", "k", "v", "state", "grid", or of a rope
    table the "angles" and the "table" of a batch's cosines and sines; of the kind "constant" the key itself is the numbers,
    floats or unsigned integers."""

    kind: str
    key: int | str | tuple


class Access(NamedTuple):
    """``row``: the floats from one row to the next, where every row is touched only by the thread that owns it; else 0.

    Two values of different widths in one slot have their rows at different places.
    """

    region: Region
    row: int = 0


@dataclass(frozen=True)
class Op:
    """``args`` are numbers and regions, None for a region that is not there; ``rows`` TOKENS or OUTPUTS."""

    kernel: str
    rows: str
    args: tuple[int | float | Region | None, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    name: str


@dataclass(frozen=True)
class Packed:
    """Memory for one slot's activations as bytes; ``rows`` of ``n_in`` columns for every row of the slot."""

    slot: int
    n_in: int
    rows: int
    wide: bool


def stride(width: int) -> int:
    """Floats from one row of a slot to the next."""
    return -(-width // 4) * 4


class OpBuilder:
    """Operations for the steps of one plan.

    ``exact``: multiply with unrounded activations. ``has_relaxed`` and ``dot_mode`` say how this machine multiplies
    bytes. ``formats`` and ``packed`` tell afterwards what the memory must hold.
    """

    def __init__(self, plan: Plan, *, cache: CacheLayout, exact: bool, has_relaxed: bool, dot_mode: int) -> None:
        self.plan, self.cache = plan, cache
        self.exact, self._has_relaxed, self._dot_mode = exact, has_relaxed, dot_mode
        self._current: set[Region] = set()  # packed regions that hold what is in their slot now
        self.packed: dict[Region, Packed] = {}
        self.formats: Mapping[str, Format] = {
            w.name: _checked(format_of(w.type, w.name), w) for w in plan.weights().values()
        }

    def step_done(self, step: Step) -> None:
        """The step's operations are all made: what was packed of its output's old value is stale."""
        if step.output is not None:
            self._current = {r for r in self._current if self.packed[r].slot != step.output}

    def rope_table(self, key: str, table: RopeTable) -> Op:
        angles, out = Region("angles", key), Region("table", key)
        args = (angles, table.n_rot // 2, out, float(table.frequencies(self._no_factors(table))[1]))
        return Op("rope_table", TOKENS, args, (), (Access(out, table.n_rot),), f"rope table {key}")

    @staticmethod
    def _no_factors(table: RopeTable) -> list[float] | None:
        """Factors change the angles only; the magnitude is known before they are read."""
        return [1.0] * (table.n_rot // 2) if table.factors_tensor else None

    def pack_rows(self, step: Step, slot: int, n_in: int, wide: bool, *, single: bool, repeat: int = 1) -> Iterator[Op]:
        """Bring the rows of a slot into packed form, unless they are; ``single``: in tiles of one row."""
        region = self.packed_region(slot, n_in, wide, single)
        if region in self._current:
            return
        self.packed[region] = Packed(slot, n_in, repeat, wide)
        self._current.add(region)
        source = Region("slot", slot)
        args = (source, region, stride(n_in * repeat), n_in, repeat, 1 if single else TILE, int(wide))
        yield Op("quantise", step.rows, args, (Access(source, stride(n_in * repeat)),), (Access(region, n_in),),
                 f"quantise {step.name}")

    def packed_region(self, slot: int, n_in: int, wide: bool, single: bool) -> Region:
        return Region("packed", (slot, n_in, wide, single))

    def is_wide(self, format: Format) -> bool:
        return not self._has_relaxed or (format.layout.name in WIDE_CODES and self._dot_mode == DOTS_SATURATE)

    def elementwise(self, step: Step, first: float = 0.0, second: float = 0.0, act: int = 0) -> Op:
        """An operation on values of one width; ``first`` and ``second`` are its constants."""
        def args(*regions: Region) -> tuple:
            *inputs, out = regions
            return (inputs[0], inputs[1] if len(inputs) > 1 else None, out, stride(step.width), act, first, second)

        return self.row_op(step, step.kernel, args)

    def row_op(self, step: Step, kernel: str, args: Callable[..., tuple], input_widths: tuple[int, ...] = ()) -> Op:
        """An operation whose rows depend only on the same rows of its inputs; ``args`` gets inputs and output."""
        inputs, out = [Region("slot", slot) for slot in step.inputs], Region("slot", step.output)
        widths = input_widths or [step.width] * len(inputs)
        reads = tuple(Access(region, stride(width)) for region, width in zip(inputs, widths, strict=True))
        return Op(kernel, step.rows, args(*inputs, out), reads, (Access(out, stride(step.width)),), step.name)


def _checked(format: Format, weight: Weight) -> Format:
    if len(weight.shape) == 1 and weight.type not in VECTOR_TYPES:
        raise UnsupportedError(f"tensor {weight.name} is a vector of the type {weight.type}; "
                               f"the CPU backend takes vectors of {', '.join(VECTOR_TYPES)}")
    return format
