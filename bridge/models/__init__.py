"""Architectures: one module per family, found by the name in ``general.architecture``.

Each module has ``build(h, g) -> Graph``: hyper-parameters from the metadata, then the layer, then the head, written with
GGUF tensor names, and may say that "some" or "all" of its ``RECURRENT_LAYERS`` are such. Nothing else in the package knows an architecture's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bridge.errors import ModelError, UnsupportedError
from bridge.graph import Graph, GraphBuilder
from bridge.models.hparams import HParams

ARCHITECTURES: Mapping[str, str] = {
    "llama": "bridge.models.llama",
    "qwen2": "bridge.models.qwen2",
    "qwen3": "bridge.models.qwen3",
    "gemma2": "bridge.models.gemma2",
    "gemma3": "bridge.models.gemma3",
    "lfm2": "bridge.models.lfm2",
    "mamba": "bridge.models.mamba",
    "mamba2": "bridge.models.mamba2",
    "rwkv7": "bridge.models.rwkv7",
}


def build_graph(metadata: Mapping[str, Any], tensors: Mapping[str, Any], n_ctx: int) -> Graph:
    """The graph of the model that a file's metadata and tensor table describe, for contexts of ``n_ctx`` tokens.

    Raises UnsupportedError for an unknown architecture or feature, and ModelError for a missing or misshapen tensor or
    key, naming it.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise ModelError("the file does not say its architecture: the metadata key general.architecture is missing")
    module = ARCHITECTURES.get(architecture)
    if module is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedError(f"the architecture {architecture!r} is not supported; supported are {known}")
    architecture_module = import_module(module)
    h = HParams.read(metadata, tensors, n_ctx, getattr(architecture_module, "RECURRENT_LAYERS", "none"))
    return architecture_module.build(h, GraphBuilder(tensors))
