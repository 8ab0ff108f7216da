"""Whether this engine can run a model, told from its header alone, for each backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bridge.errors import BridgeError
from bridge.graph import Graph
from bridge.graph.cache import CacheLayout
from bridge.models import build_graph
from bridge.plan import lower
from bridge.quants.types import quant_type
from bridge.tokenizer import Tokenizer

N_CTX = 512
"""Positions the graph is made for; nothing that is looked at here depends on them."""


def missing_for(metadata: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, str | None]:
    """What keeps a file from running, as a sentence, for "reference", "simd" (the CPU) and "webgpu"; None: nothing.

    A device's own limits are not looked at: ``webgpu`` stands for an adapter with the limits that every one has.
    """
    kind = metadata.get("general.type", "model")
    if kind != "model":
        return dict.fromkeys(BACKENDS, f"the file is no model by itself: its general.type is {str(kind)[:40]!r}")
    try:
        Tokenizer.from_metadata(metadata)
        graph = build_graph(metadata, tensors, N_CTX)
    except BridgeError as error:
        return dict.fromkeys(BACKENDS, str(error))
    return {backend: _reason(check, graph) for backend, check in BACKENDS.items()}


def _reason(check: Callable[[Graph], None], graph: Graph) -> str | None:
    try:
        check(graph)
    except BridgeError as error:
        return str(error)
    return None


def _check_reference(graph: Graph) -> None:
    for weight in graph.weights().values():
        quant_type(weight.type)


def _check_simd(graph: Graph) -> None:
    from bridge.simd.steps import programs_of

    programs_of(lower(graph), cache=_cache(graph), exact=False, has_relaxed=True, dot_mode=0)


def _cache(graph: Graph) -> CacheLayout:
    return CacheLayout(graph.kv_layers, N_CTX, N_CTX, "f16", "f16")


def _check_webgpu(graph: Graph) -> None:
    from bridge.gpu.calls import CallBuilder
    from bridge.gpu.device import Limits
    from bridge.gpu.steps import calls_of
    from bridge.gpu.tuning import HARDWARE
    from bridge.gpu.weights import place_weights

    plan, limits = lower(graph, HARDWARE.rules), Limits()
    builder = CallBuilder(plan, place_weights(plan, limits), HARDWARE, cache=_cache(graph),
                          max_workgroups=limits.max_compute_workgroups_per_dimension)
    for step in plan.steps:
        calls_of(builder, step)


BACKENDS: Mapping[str, Callable[[Graph], None]] = {
    "reference": _check_reference, "simd": _check_simd, "webgpu": _check_webgpu}
