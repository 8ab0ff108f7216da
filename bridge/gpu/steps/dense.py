"""Steps on rows that know neither positions nor a cache: norms, activations, element by element."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gpu.calls import WORD_OF_ROWS, Call, CallBuilder, Choice, Operand, grid_of, pack, quads
from bridge.plan.plan import Step

FLOAT_MAX = 3.4028234663852886e38


ROWS_OF = ("tokens", "positions", "first")
"""In the order of their numbers in embed.wgsl."""


def embed(b: CallBuilder, step: Step) -> Iterator[Call]:
    matrix = b.placement.matrices[step.weights[0].name]
    format, n_in = matrix.format, matrix.n_in
    columns = n_in // format.group + quads(n_in % format.group)
    for i, part in enumerate(matrix.parts):
        dims = pack(n_in, part.n_rows, matrix.row_nbytes, part.first_row, quads(n_in), float(step.attrs["scale"]),
                    ROWS_OF.index(step.attrs["of"]))
        operands = (Operand("matrix", matrix.name, i), Operand("slot", step.output), *grid_of(matrix))
        access = "rw" + "r" * (len(operands) - 2)
        yield from b.by_columns(step, "embed.wgsl", dims, operands, columns, access, **format.values, GRID_BINDING=4)


def norm(b: CallBuilder, step: Step) -> Iterator[Call]:
    group, vectors = step.attrs["group"], [Operand("vector", weight.name) for weight in step.weights]
    period = step.weights[0].shape[0] if step.weights else 0
    residual = step.inputs[1:]
    dims = pack(group, 4 * quads(step.width), WORD_OF_ROWS[step.rows], period, int(len(vectors) > 1), len(residual),
                float(step.attrs["eps"]))
    x = Operand("slot", step.inputs[0])  # also stands in for a weight, bias or residual that is not there
    operands = (x, *(vectors + [x, x])[:2], Operand("slot", residual[0]) if residual else x, Operand("slot", step.output))
    pipeline = b.pipeline("norm.wgsl", "rrrrw", WORKGROUP=b.tuning.norm_workgroup, CENTRED=step.kernel == "layer_norm")
    yield Call(step.name, (Choice(1, step.width // group, pipeline),), dims, operands, step.rows)


def activate(b: CallBuilder, step: Step) -> Iterator[Call]:
    yield from b.elementwise(step, "activate.wgsl", ACT=step.attrs["act"])


def glu(b: CallBuilder, step: Step) -> Iterator[Call]:
    yield from b.elementwise(step, "glu.wgsl", ACT=step.attrs["act"])


def add(b: CallBuilder, step: Step) -> Iterator[Call]:
    yield from b.elementwise(step, "add.wgsl")


def mul(b: CallBuilder, step: Step) -> Iterator[Call]:
    b_width = step.input_widths[1]
    dims = pack(step.width, step.width // b_width, 4 * quads(step.width), 4 * quads(b_width), WORD_OF_ROWS[step.rows])
    yield from b.by_columns(step, "mul.wgsl", dims, b.slots(step), step.width)


def dot(b: CallBuilder, step: Step) -> Iterator[Call]:
    dims = pack(step.width, step.attrs["group"], 4 * quads(step.input_widths[0]), 4 * quads(step.width),
                WORD_OF_ROWS[step.rows])
    yield from b.by_columns(step, "dot.wgsl", dims, b.slots(step), step.width)


def mix_runs(b: CallBuilder, step: Step) -> Iterator[Call]:
    (x_width, c_width), n_in = step.input_widths, step.attrs["n_in"]
    dims = pack(step.width, n_in, x_width // n_in, 4 * quads(x_width), 4 * quads(c_width), 4 * quads(step.width),
                WORD_OF_ROWS[step.rows])
    yield from b.by_columns(step, "mix_runs.wgsl", dims, b.slots(step), step.width)


def vector(b: CallBuilder, step: Step) -> Iterator[Call]:
    weight = step.weights[0]
    dims = pack(step.width, weight.shape[0], 4 * quads(step.width), WORD_OF_ROWS[step.rows])
    operands = (Operand("slot", step.inputs[0]), Operand("vector", weight.name), Operand("slot", step.output))
    yield from b.by_columns(step, "vector.wgsl", dims, operands, step.width, MULTIPLY=step.kernel == "mul_vector")


def columns(b: CallBuilder, step: Step) -> Iterator[Call]:
    attrs = step.attrs
    dims = pack(step.width, attrs["first"], attrs["count"], attrs["group"], 4 * quads(step.input_widths[0]),
                4 * quads(step.width), WORD_OF_ROWS[step.rows])
    yield from b.by_columns(step, "columns.wgsl", dims, b.slots(step), step.width)


def concat(b: CallBuilder, step: Step) -> Iterator[Call]:
    (a_width, b_width), shared = step.input_widths, step.attrs["shared"]
    a_head, b_head = a_width // step.attrs["n_head"], b_width if shared else b_width // step.attrs["n_head"]
    dims = pack(step.width, a_head, b_head, 0 if shared else b_head, 4 * quads(a_width), 4 * quads(b_width),
                4 * quads(step.width), WORD_OF_ROWS[step.rows])
    yield from b.by_columns(step, "concat.wgsl", dims, b.slots(step), step.width)


def scale(b: CallBuilder, step: Step) -> Iterator[Call]:
    yield from b.elementwise(step, "scale.wgsl", float(step.attrs["scale"]), float(step.attrs["offset"]))


def clamp(b: CallBuilder, step: Step) -> Iterator[Call]:
    yield from b.elementwise(step, "clamp.wgsl", _finite(step.attrs["low"]), _finite(step.attrs["high"]))


def _finite(bound: float) -> float:
    """WGSL knows no infinity: the largest float stands for it."""
    return max(-FLOAT_MAX, min(FLOAT_MAX, float(bound)))


def softcap(b: CallBuilder, step: Step) -> Iterator[Call]:
    yield from b.elementwise(step, "softcap.wgsl", float(step.attrs["cap"]))


def select_outputs(b: CallBuilder, step: Step) -> Iterator[Call]:
    columns = quads(step.width)
    yield from b.by_columns(step, "select_outputs.wgsl", pack(columns), b.slots(step), columns)


KERNELS = {
    "embed": embed,
    "rms_norm": norm,
    "layer_norm": norm,
    "activate": activate,
    "glu": glu,
    "add": add,
    "mul": mul,
    "mix_runs": mix_runs,
    "dot": dot,
    "add_vector": vector,
    "mul_vector": vector,
    "columns": columns,
    "concat": concat,
    "scale": scale,
    "clamp": clamp,
    "softcap": softcap,
    "select_outputs": select_outputs,
}
