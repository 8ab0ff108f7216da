"""Rotation by position, the cache, and attention over it."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import UnsupportedError
from bridge.gpu.calls import MAX_HEAD_DIM, Call, CallBuilder, Choice, Operand, check_heads, pack, quads
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
    attrs, kv, unit = step.attrs, b.plan.kv_layers[step.attrs["layer"]], b.kv_unit
    head_dim, head_dim_v, n_head = attrs["head_dim"], attrs["head_dim_v"], attrs["n_head"]
    check_heads(step)
    dims = pack(n_head, n_head // attrs["n_head_kv"], head_dim // unit, head_dim_v // unit, kv.k_width // unit,
                kv.v_width // unit, 4 * quads(n_head * head_dim) // unit, 4 * quads(step.width) // unit, attrs["window"],
                float(attrs["scale"]), float(attrs["softcap"]), 0, 0, 0, len(step.weights), b.cache.rows(attrs["layer"]))
    pipeline = b.pipeline("attention.wgsl", "rrrwr", WORKGROUP=b.tuning.attention_workgroup, CHUNK=b.tuning.attention_chunk,
                          MAX_HEAD_UNITS=MAX_HEAD_DIM // unit, TEXTS_ONLY=False, SLOPES=False, BUCKETS=False,
                          WRITES=False, **b.kv_values)
    q = Operand("slot", step.inputs[0])  # also stands in for sinks that are not there
    operands = (q, Operand("k", attrs["layer"]), Operand("v", attrs["layer"]), Operand("slot", step.output),
                Operand("vector", step.weights[0].name) if step.weights else q)
    yield Call(step.name, (Choice(1, n_head, pipeline),), dims, operands, step.rows)


def scale_by_position(b: CallBuilder, step: Step) -> Iterator[Call]:
    yield from b.elementwise(step, "scale_by_position.wgsl", step.attrs["period"], float(step.attrs["scale"]))


KERNELS = {
    "rope": rope,
    "scale_by_position": scale_by_position,
    "kv_write": kv_write,
    "write_heads": write_heads,
    "attention": attention,
}
