"""Attention and means within the texts of a batch, and the softmax over labels."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gpu.calls import WORD_OF_ROWS, Call, CallBuilder, Choice, Operand, check_heads, pack, quads, unit_of
from bridge.gpu.steps.attention_tile import Heads, attention_tiles
from bridge.plan.plan import Step


NO_RING = (1 << 32) - 1


def text_attention(b: CallBuilder, step: Step) -> Iterator[Call]:
    attrs = step.attrs
    check_heads(step)
    head_dim, head_dim_v, n_head, n_head_kv = (attrs[name] for name in ("head_dim", "head_dim_v", "n_head", "n_head_kv"))
    unit = unit_of((head_dim, head_dim_v))
    heads = Heads(n_head // n_head_kv, unit, head_dim // unit, head_dim_v // unit)
    k_units, v_units, q_units, y_units = (4 * quads(width) // unit for width in (
        n_head_kv * head_dim, n_head_kv * head_dim_v, n_head * head_dim, step.width))
    dims = pack(n_head_kv, k_units, v_units, q_units, y_units, 0, float(attrs["scale"]), float(attrs["softcap"]),
                attrs["before"], attrs["after"], len(attrs["buckets"]) // 2, 0, NO_RING)
    bias: tuple[Operand, ...] = ()
    if attrs["slopes"]:
        bias = (Operand("constant", attrs["slopes"]),)
    elif attrs["buckets"]:
        bias = (Operand("vector", step.weights[0].name), Operand("constant", attrs["buckets"]))
    choices = tuple(
        Choice(tile.rows, n_head_kv, b.pipeline(
            "attention.wgsl", "rrrw" + "r" * len(bias), **tile.values, K_TYPE="f32", V_TYPE="f32", SPLIT=False, SPLITS=1,
            WRITES=False, TEXTS_ONLY=True, SLOPES=bool(attrs["slopes"]), BUCKETS=bool(attrs["buckets"])), tile.from_rows)
        for tile in attention_tiles(b.tuning, heads))
    yield Call(step.name, choices, dims, (*b.slots(step), *bias), step.rows, repeat=heads.shared_by)


def text_mean(b: CallBuilder, step: Step) -> Iterator[Call]:
    columns = quads(step.width)
    yield from b.by_columns(step, "text_mean.wgsl", pack(columns), b.slots(step), columns)


def softmax(b: CallBuilder, step: Step) -> Iterator[Call]:
    dims = pack(step.width, 4 * quads(step.width), WORD_OF_ROWS[step.rows])
    yield from b.by_columns(step, "softmax.wgsl", dims, b.slots(step), 1)


KERNELS = {
    "text_attention": text_attention,
    "text_mean": text_mean,
    "softmax": softmax,
}
