"""How attention is cut into workgroups: see kernels/wgsl/attention.wgsl for what the numbers mean."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.gpu.device import Limits
from bridge.gpu.tuning import Tuning

FLOAT_BYTES = 4


@dataclass(frozen=True)
class Heads:
    """``shared_by``: heads of queries for each head of keys; ``unit``: columns read at a time, of which the other two are
    the numbers in a head of keys and of values."""

    shared_by: int
    unit: int
    k_units: int
    v_units: int


@dataclass(frozen=True)
class AttentionTile:
    """``rows`` of queries by ``workgroup * keys_each`` keys; ``unit_lanes`` invocations have units of an output row."""

    heads: Heads
    workgroup: int
    rows: int
    keys_each: int

    @property
    def from_rows(self) -> int:
        """Of the grid, from which it is worth it: it is at least half full, or for single tokens."""
        return 1 if self.rows <= self.heads.shared_by else self.rows // 2

    @property
    def unit_lanes(self) -> int:
        return min(self.workgroup, 1 << (self.heads.v_units - 1).bit_length())

    @property
    def workgroup_bytes(self) -> int:
        """Of workgroup memory: queries, scores, two parts of each softmax, and two numbers of each row."""
        segments = self.workgroup // self.rows
        of_row = self.heads.k_units * self.heads.unit + self.workgroup * self.keys_each + 2 * segments + 2
        return FLOAT_BYTES * self.rows * of_row

    @property
    def values(self) -> dict[str, int | bool]:
        heads, groups = self.heads, self.workgroup // self.unit_lanes
        return {"WORKGROUP": self.workgroup, "ROWS": self.rows, "KEYS_EACH": self.keys_each, "HEADS": heads.shared_by,
                "UNIT_OF_4": heads.unit == 4, "UNIT_WIDTH": heads.unit, "K_UNITS": heads.k_units,
                "V_UNITS": heads.v_units, "UNIT_LANES": self.unit_lanes, "ROW_GROUPS": groups > 1,
                "UNITS_EACH": -(-heads.v_units // self.unit_lanes), "ROWS_EACH": -(-self.rows // groups)}


def attention_tiles(tuning: Tuning, heads: Heads) -> tuple[AttentionTile, ...]:
    """One for single tokens, then one for more where that is another; as large as the memory of every adapter allows."""
    wanted = dict.fromkeys((min(heads.shared_by, tuning.attention_rows), tuning.attention_rows))
    return tuple(dict.fromkeys(_fitting(AttentionTile(heads, tuning.attention_workgroup, rows, tuning.attention_keys_each))
                               for rows in wanted))


def _fitting(tile: AttentionTile) -> AttentionTile:
    most = Limits().max_compute_workgroup_storage_size
    while tile.workgroup_bytes > most:
        if tile.keys_each > 1:
            tile = AttentionTile(tile.heads, tile.workgroup, tile.rows, 1)
        else:
            tile = AttentionTile(tile.heads, tile.workgroup, tile.rows // 2, 1)
    return tile
