"""What each kind of step is in operations, by family; the families are those of bridge.graph.reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from bridge.errors import UnsupportedError
from bridge.plan.plan import Step
from bridge.simd.ops import Op, OpBuilder
from bridge.simd.steps import attention, dense, experts, recurrent, texts

KERNELS: Mapping[str, Callable[[OpBuilder, Step], Iterator[Op]]] = {
    **dense.KERNELS, **attention.KERNELS, **experts.KERNELS, **recurrent.KERNELS, **texts.KERNELS}


def ops_of(builder: OpBuilder, steps: Sequence[Step]) -> list[Op]:
    """All operations for some of the plan's steps, in order. Raises UnsupportedError for what no kernel does."""
    found = [builder.rope_table(key, table) for key, table in builder.plan.rope_tables.items()]
    for step in steps:
        kernel = KERNELS.get(step.kernel)
        if kernel is None:
            raise UnsupportedError(f"the CPU backend has no kernel for {step.kernel} (step {step.name})")
        found += kernel(builder, step)
        builder.step_done(step)
    return found
