"""Steps on rows that know neither positions nor a cache: products, norms, activations, element by element."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import UnsupportedError
from bridge.plan.plan import Step
from bridge.simd.ops import Access, Op, OpBuilder, Region, stride

ACTS = ("silu", "gelu")
"""In the order of their numbers in kernels/simd/rows.c."""


def embed(b: OpBuilder, step: Step) -> Iterator[Op]:
    weight = step.weights[0]
    matrix, out = Region("matrix", weight.name), Region("slot", step.output)
    args = (matrix, b.formats[weight.name].layout.number, step.width, out, stride(step.width),
            float(step.attrs["scale"]))
    yield Op("embed", step.rows, args, (Access(matrix),), (Access(out, stride(step.width)),), step.name)


def matmul(b: OpBuilder, step: Step) -> Iterator[Op]:
    weight, bias = step.weights[0], step.weights[1:]
    format, (n_out, n_in) = b.formats[weight.name], weight.shape
    x, residual = step.inputs[0], step.inputs[1:]
    exact = b.exact or format.layout.is_float
    source = Region("slot", x)
    if not exact:
        wide = b.is_wide(format)
        yield from b.pack_rows(step, x, n_in, wide, single=False)
        source = b.packed_region(x, n_in, wide, False)
    added = [Region("vector", w.name) for w in bias] or [None]
    rest = [Region("slot", slot) for slot in residual] or [None]
    out = Region("slot", step.output)
    args = (source, stride(n_in), Region("matrix", weight.name), format.layout.number, n_in, n_out, int(exact),
            added[0], rest[0], stride(n_out), out, stride(n_out))
    reads = tuple(Access(region) for region in (source, *rest) if region is not None)
    yield Op("matmul", step.rows, args, reads, (Access(out),), step.name)


def rms_norm(b: OpBuilder, step: Step) -> Iterator[Op]:
    attrs, weight = step.attrs, Region("vector", step.weights[0].name)
    width = stride(step.width)
    yield b.row_op(step, "rms_norm", lambda x, out: (
        x, width, out, width, weight, step.width, attrs["group"], float(attrs["eps"])))


def glu(b: OpBuilder, step: Step) -> Iterator[Op]:
    act = step.attrs["act"]
    if act not in ACTS:
        raise UnsupportedError(f"the CPU backend has no activation {act} (step {step.name}); it has {', '.join(ACTS)}")
    yield b.elementwise(step, ACTS.index(act), 0.0)


def add(b: OpBuilder, step: Step) -> Iterator[Op]:
    yield b.elementwise(step, 0, 0.0)


def scale(b: OpBuilder, step: Step) -> Iterator[Op]:
    yield b.elementwise(step, 0, float(step.attrs["scale"]))


def softcap(b: OpBuilder, step: Step) -> Iterator[Op]:
    yield b.elementwise(step, 0, float(step.attrs["cap"]))


def select_outputs(b: OpBuilder, step: Step) -> Iterator[Op]:
    x, out = Region("slot", step.inputs[0]), Region("slot", step.output)
    yield Op("select_outputs", step.rows, (x, None, out, stride(step.width), 0, 0.0), (Access(x),),
             (Access(out, stride(step.width)),), step.name)


KERNELS = {
    "embed": embed,
    "matmul": matmul,
    "rms_norm": rms_norm,
    "glu": glu,
    "add": add,
    "scale": scale,
    "softcap": softcap,
    "select_outputs": select_outputs,
}
