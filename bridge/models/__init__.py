"""Architectures: one module per family, found by the name in ``general.architecture``.

Each module has ``build(h, g) -> Graph``: hyper-parameters from the metadata, then the layer, then the head, written with
GGUF tensor names, and may say that "some" or "all" of its layers are recurrent (``RECURRENT_LAYERS``). Nothing else in
the package knows an architecture's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bridge.errors import ModelError, UnsupportedError
from bridge.graph import Graph
from bridge.models.hparams import HParams
from bridge.models.pooling import build_pooled

ARCHITECTURES: Mapping[str, str] = {
    "bert": "bridge.models.bert",
    "cohere2": "bridge.models.cohere",
    "command-r": "bridge.models.cohere",
    "deepseek2": "bridge.models.deepseek2",
    "ernie4_5": "bridge.models.llama",
    "exaone4": "bridge.models.exaone4",
    "falcon": "bridge.models.falcon",
    "gemma": "bridge.models.gemma",
    "gemma-embedding": "bridge.models.gemma_embedding",
    "gemma2": "bridge.models.gemma2",
    "gemma3": "bridge.models.gemma3",
    "gemma3n": "bridge.models.gemma3n",
    "gemma4": "bridge.models.gemma4",
    "glm4": "bridge.models.glm4",
    "gpt-oss": "bridge.models.gpt_oss",
    "gpt2": "bridge.models.gpt2",
    "granite": "bridge.models.granite",
    "granitehybrid": "bridge.models.granitehybrid",
    "hunyuan-dense": "bridge.models.hunyuan",
    "internlm2": "bridge.models.llama",
    "jina-bert-v2": "bridge.models.bert",
    "lfm2": "bridge.models.lfm2",
    "lfm2moe": "bridge.models.lfm2",
    "llama": "bridge.models.llama",
    "mamba": "bridge.models.mamba",
    "mamba2": "bridge.models.mamba2",
    "minicpm": "bridge.models.granite",
    "mistral3": "bridge.models.mistral3",
    "modern-bert": "bridge.models.modern_bert",
    "nemotron": "bridge.models.starcoder2",
    "nomic-bert": "bridge.models.bert",
    "olmo2": "bridge.models.olmo2",
    "phi2": "bridge.models.phi2",
    "phi3": "bridge.models.phi3",
    "qwen2": "bridge.models.qwen2",
    "qwen2moe": "bridge.models.qwen2moe",
    "qwen3": "bridge.models.qwen3",
    "qwen35": "bridge.models.qwen35",
    "qwen3moe": "bridge.models.qwen3",
    "qwen3next": "bridge.models.qwen3next",
    "rwkv7": "bridge.models.rwkv7",
    "smollm3": "bridge.models.smollm3",
    "stablelm": "bridge.models.stablelm",
    "starcoder2": "bridge.models.starcoder2",
    "t5encoder": "bridge.models.t5encoder",
}


def build_graph(metadata: Mapping[str, Any], tensors: Mapping[str, Any], n_ctx: int, pooling: str | None = None) -> Graph:
    """The graph of the model that a file's metadata and tensor table describe, for contexts of ``n_ctx`` tokens.

    ``pooling`` is one of bridge.models.pooling.POOLINGS, or None for what the file says.

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
    return build_pooled(architecture_module, h, tensors, pooling)
