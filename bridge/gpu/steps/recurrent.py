"""Recurrences: what carries a state from each token to the next."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from bridge.errors import UnsupportedError
from bridge.gpu.calls import Call, CallBuilder, Choice, Operand, pack, quads
from bridge.plan.plan import Step

MAX_STATE_ROWS = 256
"""Elements of a state's column that an invocation keeps for itself."""
QUADS_AT_ONCE = 4
"""Of a scan: the whole column may be longer."""


def token_shift(b: CallBuilder, step: Step) -> Iterator[Call]:
    width = _state_width(b, step)
    dims = pack(width, step.width // width, 4 * quads(width), 4 * quads(step.width), width)
    yield from _over_columns(b, step, width, dims)


def conv(b: CallBuilder, step: Step) -> Iterator[Call]:
    has_bias = len(step.weights) > 1
    dims = pack(step.width, step.attrs["taps"], 4 * quads(step.width), _state_width(b, step), int(has_bias))
    weight, *_ = bound = [Operand("vector", w.name) for w in step.weights]
    yield from _over_columns(b, step, step.width, dims, (*bound, weight)[:2])


def selective_scan(b: CallBuilder, step: Step) -> Iterator[Call]:
    attrs = step.attrs
    n_head, n_group, d_state = attrs["n_head"], attrs["n_group"], attrs["d_state"]
    if d_state % 4:
        raise UnsupportedError(f"step {step.name} has states of {d_state} elements for each column; the WebGPU backend "
                               "needs a multiple of 4")
    dims = pack(step.width, step.width // n_head, n_head // n_group, n_group, d_state // 4, 4 * quads(step.width),
                4 * quads(n_head), n_group * d_state // 2, _state_width(b, step))
    yield from _over_columns(b, step, step.width, dims, QUADS=gcd(d_state // 4, QUADS_AT_ONCE),
                             SCALAR_DECAY=attrs["scalar_decay"])


def gated_delta(b: CallBuilder, step: Step) -> Iterator[Call]:
    attrs = step.attrs
    n_head, n_head_k, per_head = attrs["n_head"], attrs["n_head_k"], _quads_of_head(step)
    dims = pack(step.width, attrs["head_dim_v"], n_head, n_head_k, n_head_k * per_head, 4 * quads(step.width),
                4 * quads(n_head), _state_width(b, step), float(attrs["scale"]))
    yield from _over_columns(b, step, step.width, dims, QUADS=per_head, INTERLEAVED=attrs["interleaved"])


def wkv7(b: CallBuilder, step: Step) -> Iterator[Call]:
    dims = pack(step.width, step.width, step.width // 2, _state_width(b, step))
    yield from _over_columns(b, step, step.width, dims, QUADS=_quads_of_head(step))


def _over_columns(b: CallBuilder, step: Step, columns: int, dims: bytes, vectors: tuple[Operand, ...] = (),
                  **values: int | bool) -> Iterator[Call]:
    """One invocation for each column, whatever the number of tokens; operands: inputs, vectors, output, state.

    ``vectors`` are the step's weights unless given.
    """
    workgroup = b.tuning.elementwise_workgroup
    vectors = vectors or tuple(Operand("vector", weight.name) for weight in step.weights)
    inputs = (*(Operand("slot", slot) for slot in step.inputs), *vectors)
    operands = (*inputs, Operand("slot", step.output), Operand("state", step.attrs["state"]))
    pipeline = b.pipeline(f"{step.kernel}.wgsl", "r" * len(inputs) + "ww", WORKGROUP=workgroup, **values)
    yield Call(step.name, (Choice(1, -(-columns // workgroup), pipeline),), dims, operands, step.rows, once=True)


def _state_width(b: CallBuilder, step: Step) -> int:
    return b.plan.states[step.attrs["state"]]


def _quads_of_head(step: Step) -> int:
    head_dim = step.attrs["head_dim"]
    if head_dim > MAX_STATE_ROWS or head_dim % 4:
        raise UnsupportedError(f"step {step.name} has heads of {head_dim} columns; the WebGPU backend takes "
                               f"multiples of 4 up to {MAX_STATE_ROWS} in a recurrence")
    return head_dim // 4


KERNELS = {
    "token_shift": token_shift,
    "conv": conv,
    "selective_scan": selective_scan,
    "gated_delta": gated_delta,
    "wkv7": wkv7,
}
