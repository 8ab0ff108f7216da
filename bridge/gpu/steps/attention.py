"""Rotation by position, the cache, and attention over it."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import UnsupportedError
from bridge.gpu.calls import Call, CallBuilder, Choice, Operand, check_heads, pack, quads
from bridge.gpu.steps.attention_tile import FLOAT_BYTES, AttentionTile, Heads, attention_tiles
from bridge.gpu.tuning import Tuning
from bridge.graph.cache import CacheLayout
from bridge.graph.graph import ALL
from bridge.plan.plan import Step


def rope(b: CallBuilder, step: Step) -> Iterator[Call]:
    attrs = step.attrs
    _check_rotation(step, attrs["n_rot"])
    dims = pack(attrs["head_dim"] // 2, attrs["n_rot"] // 2, step.width // 2, 4 * quads(step.width),
                b.table_index[attrs["table"]])
    yield from b.by_columns(step, "rope.wgsl", dims, b.slots(step), step.width // 2,
                            NEOX=attrs["style"] == "neox")


def _check_rotation(step: Step, n_rot: int) -> None:
    if step.attrs["head_dim"] % 2 or n_rot % 2:
        raise UnsupportedError(f"step {step.name} rotates {n_rot} of {step.attrs['head_dim']} columns of a head; "
                               "the WebGPU backend needs even numbers")


def kv_write(b: CallBuilder, step: Step) -> Iterator[Call]:
    layer = step.attrs["layer"]
    widths = b.plan.kv_layers[layer].k_width, b.plan.kv_layers[layer].v_width
    groups = [width // group for width, group in zip(widths, b.kv_groups.values(), strict=True)]
    dims = pack(*groups, *(4 * quads(width) for width in widths), b.cache.rows(layer))
    operands = (*(Operand("slot", slot) for slot in step.inputs), Operand("k", layer), Operand("v", layer))
    yield from b.by_columns(step, "kv_write.wgsl", dims, operands, sum(groups), "rrww",
                            WRITES=True, **b.kv_groups, **b.kv_values)


def write_heads(b: CallBuilder, step: Step) -> Iterator[Call]:
    attrs, q, k = step.attrs, step.attrs["q"], step.attrs["k"]
    check_heads(step)
    for rotation in (q, k):
        _check_rotation(step, rotation["n_rot"])
    x, norms = Operand("slot", step.inputs[0]), [Operand("vector", weight.name) for weight in step.weights]
    normed = [side["eps"] is not None for side in (q, k)]
    n_head, n_head_kv = attrs["n_head"], attrs["n_head_kv"]
    dims = pack(n_head, n_head_kv, attrs["head_dim"], attrs["head_dim_v"], 4 * quads(step.input_widths[0]),
                4 * quads(step.width), *(side["n_rot"] // 2 for side in (q, k)),
                *(b.table_index[side["table"]] if side["n_rot"] else 0 for side in (q, k)), *map(int, normed),
                b.cache.rows(attrs["layer"]), *(float(side["eps"] or 0.0) for side in (q, k)))
    operands = (x, *(norms.pop(0) if there else x for there in normed),  # x stands in for a norm that is not there
                Operand("slot", step.output), Operand("k", attrs["layer"]), Operand("v", attrs["layer"]))
    pipeline = b.pipeline("write_heads.wgsl", "rrrwww", WORKGROUP=b.tuning.norm_workgroup, NORMED=any(normed),
                          NEOX=attrs["style"] == "neox", WRITES=True, **b.kv_groups, **b.kv_values)
    yield Call(step.name, (Choice(1, n_head + 2 * n_head_kv, pipeline),), dims, operands, step.rows)


def attention(b: CallBuilder, step: Step) -> Iterator[Call]:
    """One call, and more for single tokens far into a context, whose positions several workgroups share."""
    attrs, kv, unit = step.attrs, b.plan.kv_layers[step.attrs["layer"]], b.kv_unit
    check_heads(step)
    heads = Heads(attrs["n_head"] // attrs["n_head_kv"], unit, attrs["head_dim"] // unit, attrs["head_dim_v"] // unit)
    dims = pack(attrs["n_head_kv"], kv.k_width // unit, kv.v_width // unit,
                4 * quads(attrs["n_head"] * attrs["head_dim"]) // unit, 4 * quads(step.width) // unit, attrs["window"],
                float(attrs["scale"]), float(attrs["softcap"]), 0, 0, 0, len(step.weights), b.cache.rows(attrs["layer"]))
    tiles, q = attention_tiles(b.tuning, heads), Operand("slot", step.inputs[0])
    reads = q, Operand("k", attrs["layer"]), Operand("v", attrs["layer"])
    sinks = Operand("vector", step.weights[0].name) if step.weights else q  # q stands in for sinks that are not there

    def choice(tile: AttentionTile, splits: int) -> Choice:
        pipeline = b.pipeline("attention.wgsl", "rrrwr", **tile.values, **b.kv_types, SPLIT=splits > 1, SPLITS=splits,
                              TEXTS_ONLY=False, SLOPES=False, BUCKETS=False, WRITES=False)
        return Choice(tile.rows, attrs["n_head_kv"] * splits, pipeline, tile.from_rows)

    splits = [1, *splits_of(step, b.tuning, b.cache)]
    for n, below in zip(splits, [*splits[1:], ALL]):
        if n == 1:
            yield Call(step.name, tuple(choice(tile, 1) for tile in tiles), dims,
                       (*reads, Operand("slot", step.output), sinks), step.rows, repeat=heads.shared_by, splits_below=below)
            continue
        partials = partials_of(step, n)
        yield Call(step.name, (choice(tiles[0], n),), dims, (*reads, partials, sinks), step.rows,
                   repeat=heads.shared_by, splits_from=n, splits_below=below)
        pipeline = b.pipeline("attention_merge.wgsl", "rw", WORKGROUP=b.tuning.attention_workgroup, SPLITS=n)
        yield Call(step.name, (Choice(1, attrs["n_head"], pipeline),),
                   pack(attrs["n_head"], attrs["head_dim_v"], 4 * quads(step.width)),
                   (partials, Operand("slot", step.output)), step.rows, splits_from=n, splits_below=below)


def splits_of(step: Step, tuning: Tuning, cache: CacheLayout) -> list[int]:
    """Into how many shares the positions that a single token sees may come to be split."""
    positions = min(step.attrs["window"] or ALL, cache.rows(step.attrs["layer"]))
    return [n for least, n in tuning.attention_splits if least <= positions]


def partials_of(step: Step, n_splits: int) -> Operand:
    """What so many shares of attention leave to be merged: of each head its sums, their total and the maximum."""
    attrs = step.attrs
    return Operand("partials", FLOAT_BYTES * attrs["n_head"] * n_splits * (attrs["head_dim_v"] + 2))


def scale_by_position(b: CallBuilder, step: Step) -> Iterator[Call]:
    yield from b.elementwise(step, "scale_by_position.wgsl", step.attrs["period"], float(step.attrs["scale"]))


KERNELS = {
    "rope": rope,
    "scale_by_position": scale_by_position,
    "kv_write": kv_write,
    "write_heads": write_heads,
    "attention": attention,
}
