"""Products of dense matrices: with their norm before, several matrices at once, their activation or sum after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bridge.gpu.calls import WORD_OF_ROWS, Call, CallBuilder, Choice, Operand, grid_of, pack, quads
from bridge.gpu.steps.dense import norm
from bridge.gpu.tuning import MatmulShape
from bridge.gpu.weights import Matrix, bias_name
from bridge.graph.graph import ALL
from bridge.plan.plan import Product, Step, product_of


def matmul(b: CallBuilder, step: Step) -> Iterator[Call]:
    """In larger batches a norm has a call of its own: there its arithmetic, in every tile, outweighs a dispatch."""
    product, apart = product_of(step), b.tuning.norm_apart
    if product.norm is None or step.scratch is None:
        yield from _products(b, step, product)
        return
    for call in _products(b, step, product) if apart > 1 else ():
        yield call.between(1, apart)
    width = product.norm.shape[0]
    normed = Step("rms_norm", step.inputs[:1], step.scratch, (product.norm,), {"eps": product.eps, "group": width},
                  step.rows, width, f"norm of {step.name}", (width,))
    rest = replace(step, inputs=(step.scratch, *step.inputs[1:]))
    for call in (*norm(b, normed), *_products(b, rest, replace(product, norm=None))):
        yield call.between(apart, ALL)


def _products(b: CallBuilder, step: Step, product: Product) -> Iterator[Call]:
    """One call for matrices in one buffer, or in two of two formats; else one for each buffer."""
    matrices = b.placement.products[tuple(weight.name for weight in product.matrices)]
    if may_be_mixed(matrices):
        yield _call(b, step, product, matrices, 0)
        return
    for matrix in matrices:
        for part in range(len(matrix.parts)):
            yield _call(b, step, product, (matrix,), part)


def may_be_mixed(matrices: Sequence[Matrix]) -> bool:
    """Whether one dispatch can do for two matrices: each in one buffer, and no buffers needed for grids."""
    return len(matrices) == 2 and all(len(m.parts) == 1 and not m.format.grid for m in matrices)


def _call(b: CallBuilder, step: Step, product: Product, matrices: Sequence[Matrix], part: int) -> Call:
    choices = tuple(_choice(b, product, matrices, part, shape) for shape in _shapes(b, product, matrices))
    return Call(step.name, choices, _dims(step, product, matrices, part), _operands(step, product, matrices, part),
                step.rows)


def _shapes(b: CallBuilder, product: Product, matrices: Sequence[Matrix]) -> list[MatmulShape]:
    """Those of the tuning that can do it, without any that a later one is always preferred to."""
    able = [shape for shape in b.tuning.matmul if all(shape.takes(matrix.format) for matrix in matrices)
            and (shape.takes_norm or product.norm is None)]
    return [shape for i, shape in enumerate(able) if all(shape.from_rows < later.from_rows for later in able[i + 1:])]


def _choice(b: CallBuilder, product: Product, matrices: Sequence[Matrix], part: int, shape: MatmulShape) -> Choice:
    matrix, *others = matrices
    n_rows = sum(m.parts[part].n_rows for m in matrices) * (2 if product.gated else 1)
    shape = shape.fitted(n_rows, matrix.n_in // matrix.format.group, 2 if product.gated else 1)
    rows_per_workgroup = shape.rows_per_workgroup // (2 if product.gated else 1)
    pipeline = b.matmul_pipeline(matrix, shape, NORM=product.norm is not None, ACT=product.act, GATED=product.gated,
                                 other=others[0] if others else None)
    columns = sum(-(-m.parts[part].n_rows // rows_per_workgroup) for m in matrices)
    return Choice(shape.tokens, columns, pipeline, shape.from_rows)


def _dims(step: Step, product: Product, matrices: Sequence[Matrix], part: int) -> bytes:
    matrix, *others = matrices
    rows, stride = matrix.parts[part], 4 * quads(step.width)
    dims = pack(matrix.n_in, rows.n_rows, matrix.row_nbytes, matrix.first_column + rows.first_row, quads(matrix.n_in),
                stride, stride, WORD_OF_ROWS[step.rows], int(any(product.biases)), len(step.inputs) - 1)
    if product.gated:
        dims += pack(rows.pieces[1].offset, step.width)
    for other in others:
        dims += pack(other.parts[0].n_rows, other.row_nbytes, other.first_column)
    if product.norm:
        dims += pack(float(product.eps))
    return dims


def _operands(step: Step, product: Product, matrices: Sequence[Matrix], part: int) -> tuple[Operand, ...]:
    x, residual, bias = Operand("slot", step.inputs[0]), step.inputs[1:], bias_name(product)
    if len(matrices) > 1:
        second = Operand("matrix", matrices[1].name, 0)
    else:
        second = Operand("slot", residual[0]) if residual else x  # x stands in for a bias or residual that is not there
    return (Operand("matrix", matrices[0].name, part), x, Operand("vector", bias) if bias else x, second,
            Operand("slot", step.output), *([Operand("vector", product.norm.name)] if product.norm else []),
            *grid_of(matrices[0]))


KERNELS = {"matmul": matmul}
