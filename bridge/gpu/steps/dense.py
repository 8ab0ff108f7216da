"""Steps on rows that know neither positions nor a cache: products, norms, activations, element by element."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import UnsupportedError
from bridge.gpu.calls import WORD_OF_ROWS, Call, CallBuilder, Choice, Operand, grid_of, pack, quads
from bridge.gpu.weights import Matrix
from bridge.plan.plan import Step


def embed(b: CallBuilder, step: Step) -> Iterator[Call]:
    matrix = b.placement.matrices[step.weights[0].name]
    format, n_in = matrix.format, matrix.n_in
    columns = n_in // format.group + quads(n_in % format.group)
    for i, part in enumerate(matrix.parts):
        dims = pack(n_in, part.n_rows, matrix.row_nbytes, part.first_row, quads(n_in), float(step.attrs["scale"]))
        operands = (Operand("matrix", matrix.weight.name, i), Operand("slot", step.output), *grid_of(matrix))
        access = "rw" + "r" * (len(operands) - 2)
        yield from b.by_columns(step, "embed.wgsl", dims, operands, columns, access, **format.values, GRID_BINDING=4)


def matmul(b: CallBuilder, step: Step) -> Iterator[Call]:
    matrix, bias = b.placement.matrices[step.weights[0].name], step.weights[1:]
    x, residual = step.inputs[0], step.inputs[1:]
    slot = Operand("slot", x)  # also stands in for a bias or residual that is not there
    stride = 4 * quads(step.width)
    for i, part in enumerate(matrix.parts):
        dims = pack(matrix.n_in, part.n_rows, matrix.row_nbytes, part.first_row, quads(matrix.n_in), stride, stride,
                    WORD_OF_ROWS[step.rows], len(bias), len(residual))
        operands = (Operand("matrix", matrix.weight.name, i), slot,
                    Operand("vector", bias[0].name) if bias else slot,
                    Operand("slot", residual[0]) if residual else slot, Operand("slot", step.output), *grid_of(matrix))
        yield Call(step.name, _matmul_choices(b, matrix, part.n_rows), dims, operands, step.rows)


def _matmul_choices(b: CallBuilder, matrix: Matrix, n_rows: int) -> tuple[Choice, ...]:
    return tuple(
        Choice(shape.tokens, -(-n_rows // shape.rows_per_workgroup), b.matmul_pipeline(matrix, shape, experts=False))
        for shape in b.tuning.matmul
    )


def rms_norm(b: CallBuilder, step: Step) -> Iterator[Call]:
    group = step.attrs["group"]
    dims = pack(group, 4 * quads(step.width), WORD_OF_ROWS[step.rows], float(step.attrs["eps"]))
    operands = (Operand("slot", step.inputs[0]), Operand("vector", step.weights[0].name), Operand("slot", step.output))
    pipeline = b.pipeline("rms_norm.wgsl", "rrw", WORKGROUP=b.tuning.norm_workgroup)
    yield Call(step.name, (Choice(1, step.width // group, pipeline),), dims, operands, step.rows)


def glu(b: CallBuilder, step: Step) -> Iterator[Call]:
    act = step.attrs["act"]
    if act not in ("silu", "gelu"):
        raise UnsupportedError(f"the WebGPU backend has no activation {act} (step {step.name}); it has silu and gelu")
    yield from b.elementwise(step, "glu.wgsl", SILU=act == "silu", GELU=act == "gelu")


def add(b: CallBuilder, step: Step) -> Iterator[Call]:
    yield from b.elementwise(step, "add.wgsl")


def scale(b: CallBuilder, step: Step) -> Iterator[Call]:
    yield from b.elementwise(step, "scale.wgsl", float(step.attrs["scale"]))


def softcap(b: CallBuilder, step: Step) -> Iterator[Call]:
    yield from b.elementwise(step, "softcap.wgsl", float(step.attrs["cap"]))


def select_outputs(b: CallBuilder, step: Step) -> Iterator[Call]:
    columns = quads(step.width)
    yield from b.by_columns(step, "select_outputs.wgsl", pack(columns), b.slots(step), columns)


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
