"""Steps of a plan as operations of the kernels: which one, with which regions of memory, touched how.

This is the only place that knows both the plan's vocabulary and the kernels' arguments (the structs in kernels/simd/*.c,
in the same order). Nothing here knows an address. Rows of every slot begin at a multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from bridge.errors import UnsupportedError
from bridge.graph.graph import OUTPUTS, TOKENS, Weight
from bridge.graph.rope import RopeTable
from bridge.plan.plan import Plan, Step
from bridge.simd.formats import ROWS, Format, format_of
from bridge.simd.host import DOTS_SATURATE

ACTS = ("silu", "gelu")
VECTOR_TYPES = ("F32", "F16", "BF16")
WIDE_CODES = ("Q8_0", "IQ4_NL", "IQ4_XS", "WIDE8")
"""Layouts whose codes are signed bytes: computed with 16-bit activations where relaxed dot products saturate."""
TILE = 4
"""Rows of activations that meet a weight together (kernels/simd/activations.h)."""


class Region(NamedTuple):
    """A piece of memory by what it holds: kind "slot", "packed", "matrix", "vector", "k", "v", "grid", or of a rope table
    the "angles" and the "table" of a batch's cosines and sines."""

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

    ``exact``: multiply with unrounded activations. ``has_relaxed`` and ``dot_mode`` say how this machine multiplies bytes.
    ``formats`` and ``packed`` tell afterwards what the memory must hold.
    """

    def __init__(self, plan: Plan, *, kv_type: str, exact: bool, has_relaxed: bool, dot_mode: int) -> None:
        self._plan = plan
        self._f16 = int(kv_type == "f16")
        self._exact, self._has_relaxed, self._dot_mode = exact, has_relaxed, dot_mode
        self._current: set[Region] = set()  # packed regions that hold what is in their slot now
        self.packed: dict[Region, Packed] = {}
        self.formats: Mapping[str, Format] = {
            w.name: _checked(format_of(w.type, w.name), w) for w in plan.weights().values()
        }

    def ops(self) -> list[Op]:
        """All operations, in order. Raises UnsupportedError for what no kernel does."""
        found = [self._rope_table(key, table) for key, table in self._plan.rope_tables.items()]
        for step in self._plan.steps:
            kernel = _KERNELS.get(step.kernel)
            if kernel is None:
                raise UnsupportedError(f"the CPU backend has no kernel for {step.kernel} (step {step.name})")
            found += kernel(self, step)
            if step.output is not None:
                self._current = {r for r in self._current if self.packed[r].slot != step.output}
        return found

    def _rope_table(self, key: str, table: RopeTable) -> Op:
        angles, out = Region("angles", key), Region("table", key)
        args = (angles, table.n_rot // 2, out, float(table.frequencies(self._no_factors(table))[1]))
        return Op("rope_table", TOKENS, args, (), (Access(out, table.n_rot),), f"rope table {key}")

    @staticmethod
    def _no_factors(table: RopeTable) -> list[float] | None:
        """Factors change the angles only; the magnitude is known before they are read."""
        return [1.0] * (table.n_rot // 2) if table.factors_tensor else None

    def _packed(self, step: Step, slot: int, n_in: int, wide: bool, *, single: bool, repeat: int = 1) -> Iterator[Op]:
        """Bring the rows of a slot into packed form, unless they are; ``single``: in tiles of one row."""
        region = self._packed_region(slot, n_in, wide, single)
        if region in self._current:
            return
        self.packed[region] = Packed(slot, n_in, repeat, wide)
        self._current.add(region)
        source = Region("slot", slot)
        args = (source, region, stride(n_in * repeat), n_in, repeat, 1 if single else TILE, int(wide))
        yield Op("quantise", step.rows, args, (Access(source, stride(n_in * repeat)),), (Access(region, n_in),), f"quantise {step.name}")

    def _packed_region(self, slot: int, n_in: int, wide: bool, single: bool) -> Region:
        return Region("packed", (slot, n_in, wide, single))

    def _is_wide(self, format: Format) -> bool:
        return not self._has_relaxed or (format.layout.name in WIDE_CODES and self._dot_mode == DOTS_SATURATE)

    def embed(self, step: Step) -> Iterator[Op]:
        weight = step.weights[0]
        matrix, out = Region("matrix", weight.name), Region("slot", step.output)
        args = (matrix, self.formats[weight.name].layout.number, step.width, out, stride(step.width),
                float(step.attrs["scale"]))
        yield Op("embed", step.rows, args, (Access(matrix),), (Access(out, stride(step.width)),), step.name)

    def matmul(self, step: Step) -> Iterator[Op]:
        weight, bias = step.weights[0], step.weights[1:]
        format, (n_out, n_in) = self.formats[weight.name], weight.shape
        x, residual = step.inputs[0], step.inputs[1:]
        exact = self._exact or format.layout.is_float
        source = Region("slot", x)
        if not exact:
            wide = self._is_wide(format)
            yield from self._packed(step, x, n_in, wide, single=False)
            source = self._packed_region(x, n_in, wide, False)
        added = [Region("vector", b.name) for b in bias] or [None]
        rest = [Region("slot", slot) for slot in residual] or [None]
        out = Region("slot", step.output)
        args = (source, stride(n_in), Region("matrix", weight.name), format.layout.number, n_in, n_out, int(exact),
                added[0], rest[0], stride(n_out), out, stride(n_out))
        reads = tuple(Access(region) for region in (source, *rest) if region is not None)
        yield Op("matmul", step.rows, args, reads, (Access(out),), step.name)

    def matmul_experts(self, step: Step) -> Iterator[Op]:
        weight, (x, route), attrs = step.weights[0], step.inputs, step.attrs
        format, (n_expert, n_out, n_in) = self.formats[weight.name], weight.shape
        if n_out % ROWS:
            raise UnsupportedError(f"tensor {weight.name} has experts of {n_out} rows; "
                                   f"the CPU backend needs a multiple of {ROWS}")
        exact, per_expert, n_used = self._exact or format.layout.is_float, bool(attrs["per_expert"]), attrs["n_used"]
        source = Region("slot", x)
        if not exact:
            wide = self._is_wide(format)
            yield from self._packed(step, x, n_in, wide, single=True, repeat=n_used if per_expert else 1)
            source = self._packed_region(x, n_in, wide, True)
        route_region, out = Region("slot", route), Region("slot", step.output)
        args = (source, stride(n_in * n_used if per_expert else n_in), Region("matrix", weight.name), format.layout.number,
                n_in, n_out, int(exact), route_region, stride(2 * n_used), n_expert, n_used, int(per_expert), out,
                stride(step.width))
        reads = (Access(source), Access(route_region))
        yield Op("matmul_experts", step.rows, args, reads, (Access(out),), step.name)

    def route(self, step: Step) -> Iterator[Op]:
        attrs = step.attrs
        yield self._row_op(step, "route", lambda x, out: (
            x, stride(attrs["n_expert"]), out, stride(step.width), attrs["n_expert"], attrs["n_used"],
            int(attrs["normalise"])), (attrs["n_expert"],))

    def combine_experts(self, step: Step) -> Iterator[Op]:
        n_used = step.attrs["n_used"]
        yield self._row_op(step, "combine_experts", lambda x, route, out: (
            x, stride(n_used * step.width), route, stride(2 * n_used), out, stride(step.width), n_used, step.width),
            (n_used * step.width, 2 * n_used))

    def rms_norm(self, step: Step) -> Iterator[Op]:
        attrs, weight = step.attrs, Region("vector", step.weights[0].name)
        width = stride(step.width)
        yield self._row_op(step, "rms_norm", lambda x, out: (
            x, width, out, width, weight, step.width, attrs["group"], float(attrs["eps"])))

    def rope(self, step: Step) -> Iterator[Op]:
        attrs = step.attrs
        if attrs["head_dim"] % 2 or attrs["n_rot"] % 2:
            raise UnsupportedError(f"step {step.name} rotates {attrs['n_rot']} of {attrs['head_dim']} columns of a head; "
                                   "the CPU backend needs even numbers")
        width, table = stride(step.width), Region("table", attrs["table"])
        op = self._row_op(step, "rope", lambda x, out: (
            x, width, out, width, step.width, attrs["head_dim"], attrs["n_rot"], int(attrs["style"] == "neox"), table))
        yield replace(op, reads=(*op.reads, Access(table, attrs["n_rot"])))

    def kv_write(self, step: Step) -> Iterator[Op]:
        layer = step.attrs["layer"]
        widths = self._plan.kv_layers[layer]
        k, v = (Region("slot", slot) for slot in step.inputs)
        caches = Region("k", layer), Region("v", layer)
        args = (k, stride(widths.k_width), v, stride(widths.v_width), *caches, widths.k_width, widths.v_width, self._f16)
        reads = Access(k, stride(widths.k_width)), Access(v, stride(widths.v_width))
        yield Op("kv_write", step.rows, args, reads, tuple(map(Access, caches)), step.name)

    def attention(self, step: Step) -> Iterator[Op]:
        attrs, q, out = step.attrs, Region("slot", step.inputs[0]), Region("slot", step.output)
        caches = Region("k", attrs["layer"]), Region("v", attrs["layer"])
        args = (q, stride(attrs["n_head"] * attrs["head_dim"]), out, stride(step.width), *caches, attrs["n_head"],
                attrs["n_head_kv"], attrs["head_dim"], attrs["head_dim_v"], attrs["window"], self._f16,
                float(attrs["scale"]), float(attrs["softcap"]))
        yield Op("attention", step.rows, args, tuple(map(Access, (q, *caches))), (Access(out),), step.name)

    def glu(self, step: Step) -> Iterator[Op]:
        act = step.attrs["act"]
        if act not in ACTS:
            raise UnsupportedError(f"the CPU backend has no activation {act} (step {step.name}); it has {', '.join(ACTS)}")
        yield self._elementwise(step, ACTS.index(act), 0.0)

    def add(self, step: Step) -> Iterator[Op]:
        yield self._elementwise(step, 0, 0.0)

    def scale(self, step: Step) -> Iterator[Op]:
        yield self._elementwise(step, 0, float(step.attrs["scale"]))

    def softcap(self, step: Step) -> Iterator[Op]:
        yield self._elementwise(step, 0, float(step.attrs["cap"]))

    def select_outputs(self, step: Step) -> Iterator[Op]:
        x, out = Region("slot", step.inputs[0]), Region("slot", step.output)
        yield Op("select_outputs", step.rows, (x, None, out, stride(step.width), 0, 0.0), (Access(x),),
                 (Access(out, stride(step.width)),), step.name)

    def _elementwise(self, step: Step, act: int, number: float) -> Op:
        def args(*regions: Region) -> tuple:
            *inputs, out = regions
            return (inputs[0], inputs[1] if len(inputs) > 1 else None, out, stride(step.width), act, number)

        return self._row_op(step, step.kernel, args)

    def _row_op(self, step: Step, kernel: str, args: Callable[..., tuple], input_widths: tuple[int, ...] = ()) -> Op:
        """An operation whose rows depend only on the same rows of its inputs; ``args`` gets inputs and output."""
        inputs, out = [Region("slot", slot) for slot in step.inputs], Region("slot", step.output)
        widths = input_widths or [step.width] * len(inputs)
        reads = tuple(Access(region, stride(width)) for region, width in zip(inputs, widths, strict=True))
        return Op(kernel, step.rows, args(*inputs, out), reads, (Access(out, stride(step.width)),), step.name)


def _checked(format: Format, weight: Weight) -> Format:
    if len(weight.shape) == 1 and weight.type not in VECTOR_TYPES:
        raise UnsupportedError(f"tensor {weight.name} is a vector of the type {weight.type}; the CPU backend takes vectors "
                               f"of {', '.join(VECTOR_TYPES)}")
    return format


_KERNELS: dict[str, Callable[[OpBuilder, Step], Iterator[Op]]] = {
    name: getattr(OpBuilder, name)
    for name in ("embed", "matmul", "matmul_experts", "route", "combine_experts", "rms_norm", "rope", "kv_write",
                 "attention", "glu", "add", "scale", "softcap", "select_outputs")
}

__all__ = ["OUTPUTS", "TOKENS", "Access", "Op", "OpBuilder", "Packed", "Region", "stride"]
