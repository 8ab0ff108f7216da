"""Recurrences: what carries a state from each token to the next."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import UnsupportedError
from bridge.plan.plan import Step
from bridge.simd.ops import Access, Op, OpBuilder, Region, stride


def token_shift(b: OpBuilder, step: Step) -> Iterator[Op]:
    width = b.plan.states[step.attrs["state"]]
    yield _op(step, lambda x, out, state: (x, stride(width), out, stride(step.width), *_vectors(step), state, width,
                                           step.width // width))


def conv(b: OpBuilder, step: Step) -> Iterator[Op]:
    rows = stride(step.width)
    weight, bias = (*_vectors(step), None)[:2]
    yield _op(step, lambda x, out, state: (x, rows, out, rows, weight, bias, state, step.width, step.attrs["taps"]))


def selective_scan(b: OpBuilder, step: Step) -> Iterator[Op]:
    attrs, rows = step.attrs, stride(step.width)
    n_head, n_group, d_state = attrs["n_head"], attrs["n_group"], attrs["d_state"]
    _require_multiple_of_4(step, step.width // n_group)
    yield _op(step, lambda x, dt, bc, out, state: (
        x, rows, dt, stride(n_head), bc, stride(2 * n_group * d_state), out, rows, *_vectors(step), state, step.width,
        n_head, n_group, d_state, int(attrs["scalar_decay"])))


def gated_delta(b: OpBuilder, step: Step) -> Iterator[Op]:
    attrs, rows = step.attrs, stride(step.width)
    n_head, keys = attrs["n_head"], stride(attrs["n_head_k"] * attrs["head_dim"])
    _require_multiple_of_4(step, attrs["head_dim_v"])
    yield _op(step, lambda q, k, v, gate, beta, out, state: (
        q, keys, k, keys, v, rows, gate, stride(n_head), beta, out, rows, state, n_head, attrs["n_head_k"],
        attrs["head_dim"], attrs["head_dim_v"], int(attrs["interleaved"]), float(attrs["scale"])))


def wkv7(b: OpBuilder, step: Step) -> Iterator[Op]:
    _require_multiple_of_4(step, step.attrs["head_dim"])
    yield _op(step, lambda r, w, k, v, ab, out, state: (
        r, w, k, v, stride(step.width), ab, stride(2 * step.width), out, state, step.width, step.attrs["head_dim"]))


def _op(step: Step, args) -> Op:
    """``args`` gets the regions of the inputs, of the output and of the state; a thread touches columns, of any row."""
    inputs, out = [Region("slot", slot) for slot in step.inputs], Region("slot", step.output)
    state = Region("state", step.attrs["state"])
    return Op(step.kernel, step.rows, args(*inputs, out, state), tuple(map(Access, (*inputs, state))),
              (Access(out), Access(state)), step.name)


def _vectors(step: Step) -> tuple[Region, ...]:
    return tuple(Region("vector", weight.name) for weight in step.weights)


def _require_multiple_of_4(step: Step, columns: int) -> None:
    if columns % 4:
        raise UnsupportedError(f"step {step.name} has heads or groups of {columns} columns; "
                               "the CPU backend needs a multiple of 4")


KERNELS = {
    "token_shift": token_shift,
    "conv": conv,
    "selective_scan": selective_scan,
    "gated_delta": gated_delta,
    "wkv7": wkv7,
}
