"""What each kind of step is in kernel calls, by family; the families are those of bridge.graph.reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from bridge.errors import UnsupportedError
from bridge.gpu.calls import Call, CallBuilder
from bridge.gpu.steps import attention, dense, experts, matmul, recurrent, texts
from bridge.graph.graph import TOKENS
from bridge.plan.plan import Step

KERNELS: Mapping[str, Callable[[CallBuilder, Step], Iterator[Call]]] = {
    **dense.KERNELS, **matmul.KERNELS, **attention.KERNELS, **experts.KERNELS, **recurrent.KERNELS, **texts.KERNELS}

AT_POSITIONS = ("embed", "rope", "scale_by_position", "kv_write", "write_heads", "attention", "text_attention",
                *recurrent.KERNELS)
"""Kernels in which a row's number tells its token and its position."""


def calls_of(builder: CallBuilder, step: Step) -> list[Call]:
    """The calls of a step: one, or several where its weights are in several buffers.

    Raises UnsupportedError for what no kernel does.
    """
    kernel = KERNELS.get(step.kernel)
    if kernel is None:
        raise UnsupportedError(f"the WebGPU backend has no kernel for {step.kernel} (step {step.name})")
    if step.kernel in AT_POSITIONS and step.rows != TOKENS:
        raise UnsupportedError(f"the WebGPU backend computes {step.kernel} for all tokens of a batch, not for some "
                               f"(step {step.name})")
    return list(kernel(builder, step))
