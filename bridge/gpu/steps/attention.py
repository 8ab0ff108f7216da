"""Rotation by position, the cache, and attention over it."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import UnsupportedError
from bridge.gpu.calls import MAX_HEAD_DIM, Call, CallBuilder, Choice, Operand, check_heads, pack, quads
from bridge.plan.plan import Step


def rope(b: CallBuilder, step: Step) -> Iterator[Call]:
    attrs = step.attrs
    if attrs["head_dim"] % 2 or attrs["n_rot"] % 2:
        raise UnsupportedError(f"step {step.name} rotates {attrs['n_rot']} of {attrs['head_dim']} columns of a head; "
                               "the WebGPU backend needs even numbers")
    dims = pack(attrs["head_dim"] // 2, attrs["n_rot"] // 2, step.width // 2, 4 * quads(step.width),
                b.table_index[attrs["table"]])
    yield from b.by_columns(step, "rope.wgsl", dims, b.slots(step), step.width // 2,
                            NEOX=attrs["style"] == "neox")


def kv_write(b: CallBuilder, step: Step) -> Iterator[Call]:
    layer, unit = step.attrs["layer"], b.kv_unit
    k_width, v_width = b.plan.kv_layers[layer].k_width, b.plan.kv_layers[layer].v_width
    dims = pack(k_width // unit, v_width // unit, 4 * quads(k_width) // unit, 4 * quads(v_width) // unit,
                b.cache.rows(layer))
    operands = (*(Operand("slot", slot) for slot in step.inputs), Operand("k", layer), Operand("v", layer))
    yield from b.by_columns(step, "kv_write.wgsl", dims, operands, (k_width + v_width) // unit, "rrww",
                            **b.kv_values)


def attention(b: CallBuilder, step: Step) -> Iterator[Call]:
    attrs, kv, unit = step.attrs, b.plan.kv_layers[step.attrs["layer"]], b.kv_unit
    head_dim, head_dim_v, n_head = attrs["head_dim"], attrs["head_dim_v"], attrs["n_head"]
    check_heads(step)
    dims = pack(n_head, n_head // attrs["n_head_kv"], head_dim // unit, head_dim_v // unit, kv.k_width // unit,
                kv.v_width // unit, 4 * quads(n_head * head_dim) // unit, 4 * quads(step.width) // unit, attrs["window"],
                float(attrs["scale"]), float(attrs["softcap"]), 0, 0, 0, len(step.weights), b.cache.rows(attrs["layer"]))
    pipeline = b.pipeline("attention.wgsl", "rrrwr", WORKGROUP=b.tuning.attention_workgroup, CHUNK=b.tuning.attention_chunk,
                          MAX_HEAD_UNITS=MAX_HEAD_DIM // unit, TEXTS_ONLY=False, SLOPES=False, BUCKETS=False, **b.kv_values)
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
    "attention": attention,
}
