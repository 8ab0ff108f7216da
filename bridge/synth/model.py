"""Write one synthetic model: metadata, a vocabulary, and random blocks for every tensor the architecture needs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

from bridge.gguf_writer import Typed, write_gguf
from bridge.quants.types import QuantType
from bridge.synth.quant_mix import QuantMix, quant_mix
from bridge.synth.shapes import Shape
from bridge.synth.vocabulary import vocabulary

CHUNK = 4 << 20  # bytes made and written at once
MATRIX, NORM, BIAS, EMBEDDING = "matrix", "norm", "bias", "embedding"


def write_model(path: str | os.PathLike, shape: Shape, quant: str | QuantMix = "Q4_K_M", seed: int = 0) -> None:
    """Write a GGUF file with random weights, in constant memory; the same arguments give the same bytes."""
    mix = quant if isinstance(quant, QuantMix) else quant_mix(quant)
    tensors = []
    for index, (name, dimensions, role) in enumerate(tensor_list(shape)):
        type_ = mix.type_of(name, dimensions, shape.n_layer)
        data = random_data(type_, dimensions, role, seed=(seed, index))
        tensors.append((name, type_, dimensions, data))
    write_gguf(path, metadata(shape, mix), tensors)


def metadata(shape: Shape, mix: QuantMix) -> dict[str, Any]:
    """All keys of the file, the vocabulary's included."""
    keys: dict[str, Any] = {
        "embedding_length": shape.n_embd,
        "block_count": shape.n_layer,
        "feed_forward_length": shape.n_ff,
        "context_length": shape.n_ctx,
        "attention.head_count": shape.n_head,
        "attention.head_count_kv": shape.n_head_kv,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": Typed("float32", shape.rms_eps),
        "rope.freq_base": Typed("float32", shape.rope_freq_base),
        "vocab_size": shape.n_vocab,
    }
    if shape.arch in ("llama", "qwen2"):  # rotated whole, in files of these families by its own key
        keys["rope.dimension_count"] = shape.head_dim
    if shape.sliding_window:
        keys["attention.sliding_window"] = shape.sliding_window
    if shape.arch == "gemma2":
        keys["attn_logit_softcapping"] = 50.0
        keys["final_logit_softcapping"] = 30.0
    return {
        "general.architecture": shape.arch,
        "general.type": "model",
        "general.name": f"synthetic {shape.arch} {mix.name}",
        "general.file_type": mix.file_type,
        "general.quantization_version": 2,
        **{f"{shape.arch}.{key}": value for key, value in keys.items()},
        **vocabulary(shape.n_vocab, shape.pre),
    }


def tensor_list(shape: Shape) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """``(name, row-major shape, role)`` of every tensor, in file order."""
    s, gemma = shape, shape.arch.startswith("gemma")
    n_q, n_kv = s.n_head * s.head_dim, s.n_head_kv * s.head_dim
    yield "token_embd.weight", (s.n_vocab, s.n_embd), EMBEDDING
    for i in range(s.n_layer):
        layer: list[tuple[str, tuple[int, ...], str]] = [
            ("attn_norm.weight", (s.n_embd,), NORM),
            ("attn_q.weight", (n_q, s.n_embd), MATRIX),
            ("attn_k.weight", (n_kv, s.n_embd), MATRIX),
            ("attn_v.weight", (n_kv, s.n_embd), MATRIX),
            ("attn_output.weight", (s.n_embd, n_q), MATRIX),
            ("ffn_norm.weight", (s.n_embd,), NORM),
            ("ffn_gate.weight", (s.n_ff, s.n_embd), MATRIX),
            ("ffn_up.weight", (s.n_ff, s.n_embd), MATRIX),
            ("ffn_down.weight", (s.n_embd, s.n_ff), MATRIX),
        ]
        if s.arch == "qwen2":
            layer += [("attn_q.bias", (n_q,), BIAS), ("attn_k.bias", (n_kv,), BIAS), ("attn_v.bias", (n_kv,), BIAS)]
        if s.arch in ("qwen3", "gemma3"):
            layer += [("attn_q_norm.weight", (s.head_dim,), NORM), ("attn_k_norm.weight", (s.head_dim,), NORM)]
        if gemma:
            layer += [("post_attention_norm.weight", (s.n_embd,), NORM), ("post_ffw_norm.weight", (s.n_embd,), NORM)]
        for name, dimensions, role in layer:
            yield f"blk.{i}.{name}", dimensions, role
    yield "output_norm.weight", (s.n_embd,), NORM
    if not s.tied:
        yield "output.weight", (s.n_vocab, s.n_embd), MATRIX


def random_data(type_: QuantType, dimensions: tuple[int, ...], role: str, seed: tuple[int, int]) -> Iterator[Any]:
    """The tensor's bytes in pieces. Matrices keep the size of what they multiply: standard deviation 1 / sqrt(n_in)."""
    import numpy as np

    from bridge.quants.random import random_blocks

    rng = np.random.default_rng(seed)
    n_values = math.prod(dimensions)
    if role == NORM:
        yield (1 + 0.1 * rng.standard_normal(n_values)).astype("<f4")
        return
    scale = {MATRIX: 1 / math.sqrt(dimensions[-1]), EMBEDDING: 1 / math.sqrt(dimensions[-1]), BIAS: 0.02}[role]
    n_blocks = n_values // type_.block_size
    step = CHUNK // type_.type_size
    for start in range(0, n_blocks, step):
        yield random_blocks(type_, min(step, n_blocks - start), rng, scale)
