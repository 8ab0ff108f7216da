"""What a kernel call costs, in units that take about the same time each: multiplications of a weight with an activation.

An estimate for cutting batches into submits (bridge.gpu.pacing), which is off by a small factor between kernels; it need
not be better, since the time that batches take corrects it.
"""

from __future__ import annotations

from bridge.gpu.calls import Call
from bridge.gpu.weights import Placement
from bridge.plan.plan import Plan, Step

PER_WEIGHT = 4.0
"""Reading and decoding a weight once for a batch, next to one multiplication with it (python -m tools.kernel_bench --cpu)."""
PER_STATE = 4.0
"""An element of a recurrent state for a token: few invocations do it, one token after the other."""
PER_KEY = 4.0
"""An element of a key or value, which queries share less than rows of x share a weight."""


def work_of(plan: Plan, placement: Placement, step: Step, call: Call, n_rows: int) -> tuple[float, float]:
    """Units of a call for a batch of ``n_rows`` rows, and those for each position of the context."""
    if step.kernel == "attention" and any(operand.kind == "k" for operand in call.operands):  # else it merges what others did
        keys = PER_KEY * n_rows * step.attrs["n_head"] * (step.attrs["head_dim"] + step.attrs["head_dim_v"])
        window = step.attrs["window"]
        return (keys * (window + n_rows), 0.0) if window else (0.0, keys)
    if step.kernel == "text_attention":
        return PER_KEY * n_rows * n_rows * step.attrs["n_head"] * (step.attrs["head_dim"] + step.attrs["head_dim_v"]), 0.0
    if call.once:
        states = sum(plan.states[operand.key] for operand in call.operands if operand.kind == "state")
        return n_rows * (PER_STATE * states + step.width), 0.0
    weights = 0.0
    if step.kernel != "embed":  # which looks rows up
        weights = sum(_elements(placement, operand.key, operand.part) for operand in call.operands
                      if operand.kind == "matrix")
    if step.kernel in ("matmul_experts", "matmul_heads"):  # some matrices of the stack for each row
        return n_rows * (1 + PER_WEIGHT) * weights * call.repeat / step.weights[0].shape[0], 0.0
    return (n_rows + PER_WEIGHT) * weights + n_rows * step.width, 0.0


def _elements(placement: Placement, name: str, part: int) -> float:
    matrix = placement.matrices[name]
    return matrix.parts[part].nbytes / matrix.format.type.type_size * matrix.format.type.block_size
