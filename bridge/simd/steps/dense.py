"""Steps on rows that know neither positions nor a cache: products, norms, activations, element by element."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.graph.graph import ACTIVATIONS
from bridge.plan.plan import Step
from bridge.simd.ops import Access, Op, OpBuilder, Region, stride

ROWS_OF = ("tokens", "positions", "first")
"""What rows of an embedding are looked up by, in the order of their numbers in kernels/simd/rows.c."""



def embed(b: OpBuilder, step: Step) -> Iterator[Op]:
    weight = step.weights[0]
    matrix, out = Region("matrix", weight.name), Region("slot", step.output)
    args = (matrix, b.formats[weight.name].layout.number, step.width, out, stride(step.width),
            ROWS_OF.index(step.attrs["of"]), float(step.attrs["scale"]))
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


def norm(b: OpBuilder, step: Step) -> Iterator[Op]:
    attrs, width = step.attrs, stride(step.width)
    vectors = [Region("vector", weight.name) for weight in step.weights]
    period = step.weights[0].shape[0] if step.weights else 0
    yield b.row_op(step, step.kernel, lambda x, out: (
        x, width, out, width, *(vectors + [None, None])[:2], step.width, attrs["group"], period, float(attrs["eps"])))


def activate(b: OpBuilder, step: Step) -> Iterator[Op]:
    yield b.elementwise(step, act=ACTIVATIONS.index(step.attrs["act"]))


def add(b: OpBuilder, step: Step) -> Iterator[Op]:
    yield b.elementwise(step)


def mul(b: OpBuilder, step: Step) -> Iterator[Op]:
    a_width, b_width = step.input_widths
    yield b.row_op(step, "mul", lambda x, y, out: (
        x, stride(a_width), y, stride(b_width), out, a_width, a_width // b_width), step.input_widths)


def dot(b: OpBuilder, step: Step) -> Iterator[Op]:
    width = step.input_widths[0]
    yield b.row_op(step, "dot", lambda x, y, out: (
        x, y, stride(width), out, stride(step.width), width, step.attrs["group"]), step.input_widths)


def mix_runs(b: OpBuilder, step: Step) -> Iterator[Op]:
    (x_width, c_width), n_in = step.input_widths, step.attrs["n_in"]
    yield b.row_op(step, "mix_runs", lambda x, c, out: (
        x, stride(x_width), c, stride(c_width), out, stride(step.width), n_in, c_width // n_in, x_width // n_in),
        step.input_widths)


def vector(b: OpBuilder, step: Step) -> Iterator[Op]:
    weight = step.weights[0]
    yield b.row_op(step, step.kernel, lambda x, out: (
        x, stride(step.width), Region("vector", weight.name), out, step.width, weight.shape[0]))


def columns(b: OpBuilder, step: Step) -> Iterator[Op]:
    attrs, (x_width,) = step.attrs, step.input_widths
    yield b.row_op(step, "columns", lambda x, out: (
        x, stride(x_width), out, stride(step.width), x_width // attrs["group"], attrs["first"], attrs["count"],
        attrs["group"]), step.input_widths)


def concat(b: OpBuilder, step: Step) -> Iterator[Op]:
    n_head, shared, (a_width, b_width) = step.attrs["n_head"], step.attrs["shared"], step.input_widths
    b_head = b_width if shared else b_width // n_head
    yield b.row_op(step, "concat", lambda x, y, out: (
        x, stride(a_width), y, stride(b_width), out, stride(step.width), n_head, a_width // n_head, b_head,
        0 if shared else b_head), step.input_widths)


def scale(b: OpBuilder, step: Step) -> Iterator[Op]:
    yield b.elementwise(step, float(step.attrs["scale"]), float(step.attrs["offset"]))


def softcap(b: OpBuilder, step: Step) -> Iterator[Op]:
    yield b.elementwise(step, float(step.attrs["cap"]))


def clamp(b: OpBuilder, step: Step) -> Iterator[Op]:
    yield b.elementwise(step, float(step.attrs["low"]), float(step.attrs["high"]))


def select_outputs(b: OpBuilder, step: Step) -> Iterator[Op]:
    x, out = Region("slot", step.inputs[0]), Region("slot", step.output)
    yield Op("select_outputs", step.rows, (x, out, stride(step.width)), (Access(x),),
             (Access(out, stride(step.width)),), step.name)


KERNELS = {
    "embed": embed,
    "matmul": matmul,
    "rms_norm": norm,
    "layer_norm": norm,
    "activate": activate,
    "glu": activate,
    "add": add,
    "mul": mul,
    "mix_runs": mix_runs,
    "dot": dot,
    "add_vector": vector,
    "mul_vector": vector,
    "columns": columns,
    "concat": concat,
    "scale": scale,
    "softcap": softcap,
    "clamp": clamp,
    "select_outputs": select_outputs,
}
