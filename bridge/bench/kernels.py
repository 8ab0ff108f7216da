"""Each kernel of a loaded model by itself: how long it takes for the shapes the model has.

A kernel is timed over the weights of all layers in turn, so that caches hold no more of them than they do in a batch,
and on what a real batch gives it: other numbers may take another time (denormal ones do on processors).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.bench.program_timer import Deadline, ProgramTimer
from bridge.gpu.calls import Call, Operand
from bridge.gpu.costs import Cost
from bridge.gpu.device import Dispatch
from bridge.gpu.session import GpuSession
from bridge.graph.graph import OUTPUTS
from bridge.plan.plan import Step


@dataclass
class Kernel:
    """Calls of one pipeline with one shape; ``before`` is the batch as far as the first of them, ``cost`` that of all
    together, ``seconds`` the time of one."""

    label: str
    shape: str
    before: list[Dispatch]
    dispatches: list[Dispatch]
    cost: Cost
    seconds: float | None = None

    @property
    def total_seconds(self) -> float | None:
        """Of all its calls in a batch."""
        return None if self.seconds is None else self.seconds * len(self.dispatches)


def kernels_of(session: GpuSession, n_tokens: int, position: int) -> list[Kernel]:
    """The kernels of a batch of ``n_tokens`` tokens from ``position`` on; the last one's best successors are wanted."""
    found: dict[Any, Kernel] = {}
    costs = session.costs
    splits = session.programs.splits_of(n_tokens, position + n_tokens)
    batch = session.programs.dispatches(n_tokens, 1, n_splits=splits, selecting=True)
    for i, (step, call, dispatch) in enumerate(batch):
        pipeline = call.choose(1 if call.rows == OUTPUTS else n_tokens)[0]
        cost = costs.of(step, call, 1 if call.rows == OUTPUTS else n_tokens, position)
        key = pipeline, dispatch.workgroups, cost
        if key in found:
            found[key].dispatches.append(dispatch)
            found[key].cost += cost
        else:
            before = [earlier for _, _, earlier in batch[:i]]
            found[key] = Kernel(pipeline.label, _shape(step, call), before, [dispatch], cost)
    return list(found.values())


async def time_kernels(session: GpuSession, timer: ProgramTimer, tokens: Sequence[int], position: int,
                       deadline: Deadline, report: Callable[[Kernel], None] = lambda kernel: None) -> list[Kernel]:
    """The kernels of a batch of these tokens with their times, the most expensive first.

    Those that the deadline did not allow have none. What the session's cache and scratch hold afterwards is no context of
    anything.
    """
    kernels = kernels_of(session, len(tokens), position)
    kernels.sort(key=lambda kernel: -kernel.cost.nbytes - kernel.cost.flop)
    block = session.parameters(tokens, position, [len(tokens) - 1])
    for kernel in kernels:
        if deadline.is_over:
            break
        await timer.run(kernel.before, session.programs.params, block)
        kernel.seconds = await timer.seconds(kernel.dispatches, session.programs.params, block)
        report(kernel)
    return kernels


def _shape(step: Step, call: Call) -> str:
    """What a call computes: the sizes of its matrices, or the width of its rows."""
    if any(operand.kind == "matrix" for operand in call.operands) and step.kernel != "embed":
        return f"{step.weights[0].shape[-1]} to {step.width}"
    if Operand("k", step.attrs.get("layer", -1)) in call.operands and "head_dim" in step.attrs:
        return f"{step.attrs['n_head']} heads of {step.attrs['head_dim']}"
    return f"{step.width or step.input_widths[0]} wide"
