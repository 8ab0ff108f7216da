"""What each kind of step is in operations, by family; the families are those of bridge.graph.reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bridge.errors import UnsupportedError
from bridge.graph.cache import CacheLayout
from bridge.plan.plan import Plan, Step
from bridge.simd.formats import Format
from bridge.simd.ops import Op, OpBuilder, Packed, Region
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


@dataclass(frozen=True)
class Programs:
    """The operations for each result of a plan, and what memory they need besides slots and cache."""

    ops: Mapping[str, Sequence[Op]]
    packed: Mapping[Region, Packed]
    formats: Mapping[str, Format]


def programs_of(plan: Plan, *, cache: CacheLayout, exact: bool, has_relaxed: bool, dot_mode: int) -> Programs:
    """The programs of a plan on one kind of machine (see ``OpBuilder``). Raises UnsupportedError for what no kernel does."""
    ops: dict[str, Sequence[Op]] = {}
    packed: dict[Region, Packed] = {}
    for result in plan.results:
        builder = OpBuilder(plan, cache=cache, exact=exact, has_relaxed=has_relaxed, dot_mode=dot_mode)
        ops[result] = ops_of(builder, plan.steps_for(result))
        packed |= builder.packed
    return Programs(ops, packed, builder.formats)
