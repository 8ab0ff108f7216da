"""Rotation by position, the cache, and attention over it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bridge.errors import UnsupportedError
from bridge.graph.cache import CACHE_TYPES
from bridge.plan.plan import Step
from bridge.simd.ops import Access, Op, OpBuilder, Region, stride


def rope(b: OpBuilder, step: Step) -> Iterator[Op]:
    attrs = step.attrs
    if attrs["head_dim"] % 2 or attrs["n_rot"] % 2:
        raise UnsupportedError(f"step {step.name} rotates {attrs['n_rot']} of {attrs['head_dim']} columns of a head; "
                               "the CPU backend needs even numbers")
    width, table = stride(step.width), Region("table", attrs["table"])
    op = b.row_op(step, "rope", lambda x, out: (
        x, width, out, width, step.width, attrs["head_dim"], attrs["n_rot"], int(attrs["style"] == "neox"), table))
    yield replace(op, reads=(*op.reads, Access(table, attrs["n_rot"])))


def kv_write(b: OpBuilder, step: Step) -> Iterator[Op]:
    layer = step.attrs["layer"]
    widths = b.plan.kv_layers[layer]
    k, v = (Region("slot", slot) for slot in step.inputs)
    caches = Region("k", layer), Region("v", layer)
    args = (k, stride(widths.k_width), v, stride(widths.v_width), *caches, widths.k_width, widths.v_width,
            *_cache_args(b, layer))
    reads = Access(k, stride(widths.k_width)), Access(v, stride(widths.v_width))
    yield Op("kv_write", step.rows, args, reads, tuple(map(Access, caches)), step.name)


def _cache_args(b: OpBuilder, layer: int) -> tuple[int, int, int]:
    """The numbers of the types of K and V (kernels/simd/cache.h), and the rows of the layer's ring."""
    k, v = b.cache.parts[2 * layer:2 * layer + 2]
    return CACHE_TYPES.index(k.type), CACHE_TYPES.index(v.type), k.rows


def attention(b: OpBuilder, step: Step) -> Iterator[Op]:
    attrs, q, out = step.attrs, Region("slot", step.inputs[0]), Region("slot", step.output)
    caches = Region("k", attrs["layer"]), Region("v", attrs["layer"])
    args = (q, stride(attrs["n_head"] * attrs["head_dim"]), out, stride(step.width), *caches, attrs["n_head"],
            attrs["n_head_kv"], attrs["head_dim"], attrs["head_dim_v"], attrs["window"],
            *_cache_args(b, attrs["layer"]), float(attrs["scale"]), float(attrs["softcap"]),
            Region("vector", step.weights[0].name) if step.weights else None)
    yield Op("attention", step.rows, args, tuple(map(Access, (q, *caches))), (Access(out),), step.name)


def scale_by_position(b: OpBuilder, step: Step) -> Iterator[Op]:
    yield b.row_op(step, "scale_by_position", lambda x, out: (
        x, out, stride(step.width), step.attrs["period"], float(step.attrs["scale"])))


KERNELS = {
    "rope": rope,
    "scale_by_position": scale_by_position,
    "kv_write": kv_write,
    "attention": attention,
}
