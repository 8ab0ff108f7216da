"""Attention and means within the texts of a batch, and the softmax over labels."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.plan.plan import Step
from bridge.simd.ops import Access, Op, OpBuilder, Region, stride


def text_attention(b: OpBuilder, step: Step) -> Iterator[Op]:
    attrs, out = step.attrs, Region("slot", step.output)
    q, k, v = (Region("slot", slot) for slot in step.inputs)
    slopes, buckets = (Region("constant", attrs[name]) if attrs[name] else None for name in ("slopes", "buckets"))
    values = Region("vector", step.weights[0].name) if step.weights else None
    n_head, n_head_kv, head_dim, head_dim_v = (attrs[name] for name in ("n_head", "n_head_kv", "head_dim", "head_dim_v"))
    args = (q, stride(n_head * head_dim), out, stride(step.width), k, stride(n_head_kv * head_dim), v,
            stride(n_head_kv * head_dim_v), n_head, n_head_kv, head_dim, head_dim_v, attrs["before"], attrs["after"],
            slopes, values, buckets, len(attrs["buckets"]) // 2, float(attrs["scale"]), float(attrs["softcap"]))
    yield Op("text_attention", step.rows, args, tuple(map(Access, (q, k, v))), (Access(out),), step.name)


def text_mean(b: OpBuilder, step: Step) -> Iterator[Op]:
    x, out = Region("slot", step.inputs[0]), Region("slot", step.output)
    yield Op("text_mean", step.rows, (x, out, stride(step.width)), (Access(x),), (Access(out, stride(step.width)),), step.name)


def softmax(b: OpBuilder, step: Step) -> Iterator[Op]:
    yield b.row_op(step, "softmax", lambda x, out: (x, out, stride(step.width), step.width))


KERNELS = {
    "text_attention": text_attention,
    "text_mean": text_mean,
    "softmax": softmax,
}
