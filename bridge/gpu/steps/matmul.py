"""Products of dense matrices: with their norm before, several matrices at once, their activation or sum after."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.gpu.calls import WORD_OF_ROWS, Call, CallBuilder, Choice, Operand, grid_of, pack, quads
from bridge.gpu.weights import Matrix, Part, bias_name
from bridge.plan.plan import Product, Step, product_of


def matmul(b: CallBuilder, step: Step) -> Iterator[Call]:
    """One call for the matrices that share a buffer, or one for each part of it."""
    product = product_of(step)
    for matrix in b.placement.products[tuple(weight.name for weight in product.matrices)]:
        for i, part in enumerate(matrix.parts):
            yield Call(step.name, _choices(b, product, matrix, part.n_rows), _dims(step, product, matrix, part),
                       _operands(step, product, matrix, i), step.rows)


def _choices(b: CallBuilder, product: Product, matrix: Matrix, n_rows: int) -> tuple[Choice, ...]:
    choices = []
    for shape in b.tuning.matmul:
        rows_per_workgroup = shape.rows_per_workgroup // (2 if product.act else 1)
        pipeline = b.matmul_pipeline(matrix, shape, NORM=product.norm is not None, ACT=product.act)
        choices.append(Choice(shape.tokens, -(-n_rows // rows_per_workgroup), pipeline))
    return tuple(choices)


def _dims(step: Step, product: Product, matrix: Matrix, part: Part) -> bytes:
    stride = 4 * quads(step.width)
    dims = pack(matrix.n_in, part.n_rows, matrix.row_nbytes, matrix.first_column + part.first_row, quads(matrix.n_in),
                stride, stride, WORD_OF_ROWS[step.rows], int(any(product.biases)), len(step.inputs) - 1)
    if product.act:
        dims += pack(part.pieces[1].offset, step.width)
    if product.norm:
        dims += pack(float(product.eps))
    return dims


def _operands(step: Step, product: Product, matrix: Matrix, part: int) -> tuple[Operand, ...]:
    x, residual, bias = Operand("slot", step.inputs[0]), step.inputs[1:], bias_name(product)
    return (Operand("matrix", matrix.name, part), x,
            Operand("vector", bias) if bias else x,  # x stands in for a bias or residual that is not there
            Operand("slot", residual[0]) if residual else x,
            Operand("slot", step.output),
            *([Operand("vector", product.norm.name)] if product.norm else []),
            *grid_of(matrix))


KERNELS = {"matmul": matmul}
