"""The model files whose plans are tested: one of each architecture and kind of layer."""

from bridge.gguf import open_gguf
from bridge.models import build_graph
from tests.golden import MODELS

FILES = ["llama-untied-f16", "llama-ropefreqs-f16", "llama-moe-q8_0", "qwen2-f16", "qwen3-f16", "gemma2-f32",
         "gemma3-f16"]


def load(name):
    with open_gguf(MODELS / f"{name}.gguf") as file:
        graph = build_graph(file.metadata, file.tensors, 64)
        return graph, {n: file.array(n) for n in file.tensors}
