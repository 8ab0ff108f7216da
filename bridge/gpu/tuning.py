"""The choices that depend on the adapter, all in one place.

Software adapters (SwiftShader, llvmpipe) run the invocations of a workgroup one SIMD register at a time and switch
between them at every barrier: there an invocation does as much as possible on its own. On hardware neighbouring
invocations share a row of the weight so that their reads coalesce. Figures: docs/notebook.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from bridge.gpu.device import F16, SUBGROUPS, AdapterInfo
from bridge.gpu.formats import Format
from bridge.plan.fusion import (
    Rule,
    activated_products,
    add_after_norm,
    add_residual,
    gated_products,
    grouped_experts,
    heads,
    norm_into_products,
)


class MatmulShape(Protocol):
    """A kernel for products and its tile; those of one tuning are alternatives with the same bindings.

    ``rows`` are weight rows of one invocation (with GATED half of them are of the gate), ``tokens`` the rows of x that a
    workgroup takes, ``from_rows`` those from which on it is worth it. ``values`` are what its file is templated with, and
    ``takes`` says for which weights it can be used.
    """

    file: str
    takes_norm: bool
    rows: int
    tokens: int

    @property
    def from_rows(self) -> int: ...

    @property
    def rows_per_workgroup(self) -> int: ...

    @property
    def workgroup_nbytes(self) -> int:
        """Of workgroup memory; every adapter has 16 KiB."""

    @property
    def values(self) -> dict[str, int | bool | str]: ...

    def takes(self, format: Format) -> bool: ...

    def fitted(self, n_rows: int, n_groups: int, least_rows: int) -> MatmulShape:
        """The same for a weight of so many rows of so many groups; a tile keeps ``least_rows`` rows."""


STAGED_NBYTES = 8 << 10


@dataclass(frozen=True)
class LaneShape:
    """kernels/wgsl/matmul.wgsl: the tile of one invocation, how many lanes share it, and the workgroup around it.

    With ``subgroups`` (the feature) they add up their parts in registers as far as their subgroup goes. Weights with few
    rows are split among more lanes, up to a workgroup, and into tiles of fewer rows, until that many ``invocations`` have
    something to do. With ``staged`` x goes through workgroup memory, if STAGED_NBYTES of it suffice, and there it may become
    bytes: ``products`` "int8" needs packed dot products and subgroups of at least 8.
    """

    file: ClassVar[str] = "matmul.wgsl"
    takes_norm: ClassVar[bool] = True
    workgroup: int
    lanes: int
    rows: int
    tokens: int
    subgroups: bool = False
    invocations: int = 0
    staged: bool = False
    products: str = "f32"

    @property
    def from_rows(self) -> int:
        """A tile that is at least half full costs less than rows one by one (python -m tools.kernel_bench --tokens 2,4,8)."""
        return -(-self.tokens // 2)

    @property
    def rows_per_workgroup(self) -> int:
        return self.workgroup // self.lanes * self.rows

    @property
    def workgroup_nbytes(self) -> int:
        """Sums of products and of the squares of x, and what is staged with squares of its own."""
        sums = 4 * (self.rows + 1) * self.tokens * self.workgroup if self.lanes > 1 else 0
        return sums + (self._staged_nbytes + 4 * self.tokens * self.workgroup if self._is_staged else 0)

    @property
    def _staged_nbytes(self) -> int:
        """Eight quads of x for each lane, as floats or as bytes with their scale and sum."""
        return (8 * 4 + 8 if self.products == "int8" else 8 * 16) * self.lanes * self.tokens

    @property
    def _is_staged(self) -> bool:
        return self.staged and self.lanes > 1 and self._staged_nbytes <= STAGED_NBYTES

    @property
    def values(self) -> dict[str, int | bool | str]:
        is_packed = self._is_staged and self.products == "int8"
        return {"WORKGROUP": self.workgroup, "LANES": self.lanes, "ROWS": self.rows, "TOKENS": self.tokens,
                "SHARED": self.lanes > 1, "SUBGROUPS": self.subgroups,
                "STAGED": self._is_staged, "PACKED": is_packed, "SCALED": is_packed,
                "GROUPS_FILE": f"matmul_{'packed_' if is_packed else 'staged_' if self._is_staged else ''}groups.wgsl"}

    def takes(self, format: Format) -> bool:
        return self.products == "f32" or format.type.block_size > 1

    def fitted(self, n_rows: int, n_groups: int, least_rows: int) -> LaneShape:
        shape = self
        while n_rows * shape.lanes // shape.rows < self.invocations:
            # Reads of one subgroup's neighbours coalesce; a tile of several rows loads x once for all of them.
            may_widen = shape.lanes < min(n_groups, self.workgroup)
            if may_widen and (shape.lanes < 32 or shape.rows == least_rows):
                shape = replace(shape, lanes=2 * shape.lanes)
            elif shape.rows > least_rows:
                shape = replace(shape, rows=shape.rows // 2)
            else:
                break
        return shape


@dataclass(frozen=True)
class BroadcastShape:
    """kernels/wgsl/matmul_broadcast.wgsl: the tile of one invocation, and how many ``lanes`` of a subgroup share what they
    load: 8, or 4 by swaps, and no more than every subgroup has."""

    file: ClassVar[str] = "matmul_broadcast.wgsl"
    takes_norm: ClassVar[bool] = True
    workgroup_nbytes: ClassVar[int] = 0
    workgroup: int
    lanes: int
    rows: int
    tokens: int

    @property
    def from_rows(self) -> int:
        return -(-self.tokens // 2)

    @property
    def rows_per_workgroup(self) -> int:
        return self.workgroup * self.rows

    @property
    def values(self) -> dict[str, int | bool | str]:
        return {"WORKGROUP": self.workgroup, "LANES": self.lanes, "ROWS": self.rows, "TOKENS": self.tokens,
                "LOADS": 8 // self.lanes, "SWAPS": self.lanes == 4}

    def takes(self, format: Format) -> bool:
        return True

    def fitted(self, n_rows: int, n_groups: int, least_rows: int) -> BroadcastShape:
        return self


@dataclass(frozen=True)
class TileShape:
    """kernels/wgsl/matmul_tiled.wgsl: a workgroup's tile of ``rows`` · ``columns`` per invocation, ``tokens`` rows of x.

    ``products`` says in what type elements are multiplied: "f32", "f16" (the feature shader-f16) or "int8" (the language
    feature packed_4x8_integer_dot_product); ``blocks`` of 32 columns are brought to workgroup memory at once.
    """

    file: ClassVar[str] = "matmul_tiled.wgsl"
    takes_norm: ClassVar[bool] = False
    workgroup: int
    rows: int
    columns: int
    tokens: int
    from_rows: int
    products: str = "f32"
    blocks: int = 1

    @property
    def rows_per_workgroup(self) -> int:
        return self.workgroup // (self.tokens // self.columns) * self.rows

    @property
    def workgroup_nbytes(self) -> int:
        """Of each row of weights and x 32 elements a block and, where they are scaled, what belongs to its halves."""
        rows, scales = self.rows_per_workgroup, (16 * self.rows_per_workgroup + 12 * self.tokens)
        element = {"f32": 4, "f16": 2, "int8": 1}[self.products]
        return self.blocks * (32 * element * (rows + self.tokens) + (scales if self.products != "f32" else 0))

    @property
    def values(self) -> dict[str, int | bool | str]:
        scaled = self.products != "f32"
        return {"WORKGROUP": self.workgroup, "ROWS": self.rows, "COLUMNS": self.columns, "TOKENS": self.tokens,
                "BLOCKS": self.blocks, "SCALED": scaled, "F16": self.products == "f16", "INT8": self.products == "int8",
                "BLOCKS_FILE": "matmul_scaled_blocks.wgsl" if scaled else "matmul_float_blocks.wgsl"}

    def takes(self, format: Format) -> bool:
        """Floats may be beyond what halves hold, and are no bytes."""
        return self.products == "f32" or format.values["QUANTISED"] or (self.products, format.type.name) == ("f16", "F16")

    def fitted(self, n_rows: int, n_groups: int, least_rows: int) -> TileShape:
        return self


@dataclass(frozen=True)
class Tuning:
    """``rules``: what is fused (bridge.plan.fusion); ``matmul``: the shape for single tokens (and experts), then those for
    more, of which a batch gets the last that is worth it; ``norm_apart``: rows from which a norm that is part of its
    products has a dispatch of its own; ``wide_loads``: whether weights are read 16 bytes at a time where they are aligned,
    ``wide_anywhere``: also where they are not, ``shifts``: whether bytes are brought down before they become floats
    (kernels/wgsl/formats/bytes.wgsl).

    ``attention_rows``: most rows of queries in a workgroup, ``attention_keys_each``: keys of an invocation at a time,
    ``attention_splits``: from how many positions on those of a single token are shared out, and into how many shares;
    ``selection_workgroup``: that of the only one that finds the best tokens.
    """

    rules: tuple[Rule, ...]
    matmul: tuple[MatmulShape, ...]
    elementwise_workgroup: int
    norm_workgroup: int
    attention_workgroup: int
    attention_rows: int
    attention_keys_each: int
    attention_splits: tuple[tuple[int, int], ...]
    wide_loads: bool = False
    wide_anywhere: bool = False
    shifts: bool = False
    selection_workgroup: int = 256
    norm_apart: int = 32  # where a dispatch costs about what the norm adds to its products

    def splits_of(self, n_positions: int) -> int:
        """Into how many shares so many positions are split for a single token."""
        return max((n for least, n in self.attention_splits if least <= n_positions), default=1)


RULES = (heads, gated_products, activated_products, add_residual, add_after_norm)

SOFTWARE = Tuning(
    rules=RULES,  # a norm inside its products costs a tenth of the time of a token, more than a dispatch
    matmul=(LaneShape(workgroup=32, lanes=1, rows=4, tokens=1), LaneShape(workgroup=32, lanes=1, rows=4, tokens=8)),
    elementwise_workgroup=32, norm_workgroup=16, attention_workgroup=8, attention_rows=8, attention_keys_each=4,
    attention_splits=((257, 4),), selection_workgroup=32,
)
HARDWARE = Tuning(
    rules=(*RULES, norm_into_products, grouped_experts),
    matmul=(LaneShape(workgroup=64, lanes=16, rows=4, tokens=1, invocations=1 << 15, staged=True),
            LaneShape(workgroup=64, lanes=16, rows=4, tokens=4, invocations=1 << 15, staged=True),
            TileShape(workgroup=128, rows=4, columns=4, tokens=32, from_rows=9),
            TileShape(workgroup=256, rows=4, columns=4, tokens=64, from_rows=40)),
    wide_loads=True,
    shifts=True,
    norm_apart=9,  # tiles take x as it is
    elementwise_workgroup=64, norm_workgroup=64, attention_workgroup=64, attention_rows=16, attention_keys_each=1,
    attention_splits=((257, 8), (2049, 32)),
)


def tuning_for(info: AdapterInfo, *, exact: bool = True) -> Tuning:
    """The tuning of a class of adapters; what is not ``exact`` may multiply in halves where the adapter has them."""
    if info.is_software:
        lanes = info.subgroup_min_size if SUBGROUPS in info.features else 0
        return with_broadcasts(SOFTWARE, 8 if lanes >= 8 else 4) if lanes >= 4 else SOFTWARE
    tuning = with_subgroups(HARDWARE) if SUBGROUPS in info.features else HARDWARE
    return tuning if exact or F16 not in info.features else with_products(tuning, "f16")


def with_subgroups(tuning: Tuning, subgroups: bool = True) -> Tuning:
    """Lanes add up their parts in registers, or in workgroup memory."""
    return replace(tuning, matmul=tuple(replace(shape, subgroups=subgroups) if isinstance(shape, LaneShape) else shape
                                        for shape in tuning.matmul))


def with_broadcasts(tuning: Tuning, lanes: int) -> Tuning:
    """Products that load x by broadcasts among 4 or 8 ``lanes``, where every subgroup has so many."""
    # The more a load costs next to a multiplication, the more rows should share it: more so with narrow vectors, which
    # SwiftShader has. There four words cost as much as four loads, on llvmpipe half of it.
    shapes = tuple(BroadcastShape(2 * lanes, lanes, rows=32 // lanes, tokens=tokens) for tokens in (1, 8))
    # SwiftShader compiles a product of eight tokens for a second and more; with its norm apart there is one kernel for both.
    norm_apart = shapes[-1].from_rows if lanes == 4 else tuning.norm_apart
    return replace(tuning, matmul=shapes, norm_apart=norm_apart,
                   rules=(*RULES, norm_into_products),  # which cost little where x is loaded once for many rows
                   wide_loads=lanes == 8, wide_anywhere=lanes == 8)


def with_staging(tuning: Tuning, staged: bool) -> Tuning:
    """Lanes read x from workgroup memory, or each for itself, and multiply floats."""
    floats = (shape for shape in tuning.matmul if not (isinstance(shape, LaneShape) and shape.products == "int8"))
    return replace(tuning, matmul=tuple(replace(shape, staged=staged) if isinstance(shape, LaneShape) else shape
                                        for shape in floats))


def with_bytes(tuning: Tuning) -> Tuning:
    """Lanes multiply bytes, but for weights of floats."""
    floats = with_staging(tuning, True).matmul
    packed = [replace(shape, products="int8") for shape in floats if isinstance(shape, LaneShape)]
    return replace(tuning, matmul=tuple(sorted((*floats, *packed), key=lambda shape: shape.from_rows)))


def without_features(tuning: Tuning) -> Tuning:
    """The same with kernels that every adapter can run."""
    if any(isinstance(shape, BroadcastShape) for shape in tuning.matmul):
        return replace(tuning, matmul=SOFTWARE.matmul)
    floats = tuple(shape for shape in tuning.matmul if not isinstance(shape, LaneShape) or shape.products == "f32")
    return with_products(with_subgroups(replace(tuning, matmul=floats), False), "f32")


def with_products(tuning: Tuning, products: str) -> Tuning:
    """Tiles whose elements are multiplied in that type, beside those in floats for weights that cannot be."""
    floats = [shape for shape in tuning.matmul if not isinstance(shape, TileShape) or shape.products == "f32"]
    tiles = [replace(shape, products=products, blocks=2 if products == "int8" else 1) for shape in floats
             if isinstance(shape, TileShape) and products != "f32"]
    return replace(tuning, matmul=tuple(sorted((*floats, *tiles), key=lambda shape: shape.from_rows)))
