"""One synthetic model: metadata, a vocabulary, and random blocks for every tensor the architecture needs.

It can be written to a file, or read as if it had been (``SynthSource``), which takes neither disk nor memory.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from bridge.errors import InputError
from bridge.gguf.sources import ByteSource
from bridge.gguf_writer import Typed, gguf_header, write_gguf
from bridge.synth.quant_mix import QuantMix, quant_mix
from bridge.synth.shapes import Shape, shape
from bridge.synth.tensor_bytes import BIAS, EMBEDDING, MATRIX, NORM, Pools, TensorBytes
from bridge.synth.vocabulary import vocabulary

PREFIX = "synth:"


def write_model(path: str | os.PathLike, shape: Shape, quant: str | QuantMix = "Q4_K_M", seed: int = 0) -> None:
    """Write a GGUF file with random weights, in constant memory; the same arguments give the same bytes."""
    mix = quant if isinstance(quant, QuantMix) else quant_mix(quant)
    write_gguf(path, metadata(shape, mix), tensors(shape, mix, seed))


class SynthSource(ByteSource):
    """The bytes that ``write_model`` would write, each made when it is read."""

    def __init__(self, shape: Shape, quant: str | QuantMix = "Q4_K_M", seed: int = 0) -> None:
        mix = quant if isinstance(quant, QuantMix) else quant_mix(quant)
        table = tensors(shape, mix, seed)
        self._header, places = gguf_header(metadata(shape, mix), table)
        self._parts: list[tuple[int, int, Any]] = [(0, len(self._header), self._header)]  # begin, end, what is there
        for (begin, nbytes), (*_, data) in zip(places, table, strict=True):
            self._parts.append((begin, begin + nbytes, data))
        self._begins = [begin for begin, _, _ in self._parts]
        super().__init__(self._parts[-1][1])

    def _read(self, offset: int, length: int) -> bytes:
        result, wanted_end = bytearray(length), offset + length
        for begin, end, data in self._parts[bisect_right(self._begins, offset) - 1:]:
            if begin >= wanted_end:
                break
            first, last = max(offset, begin), min(wanted_end, end)
            if first < last:  # what lies between the parts is zeros
                is_header = begin == 0
                found = data[first:last] if is_header else data.read(first - begin, last - first)
                result[first - offset:last - offset] = found
        return bytes(result)


def open_synth(name: str) -> SynthSource:
    """The model that a name such as "synth:1b-Q4_K_M" or "synth:qwen3-0.6b-Q8_0" stands for; raises InputError."""
    arch_and_size, _, quant = name.removeprefix(PREFIX).rpartition("-")
    arch, _, size = arch_and_size.rpartition("-")
    if not size:
        raise InputError(f"{name!r} names no synthetic model; such a name is {PREFIX}SIZE-QUANT or "
                         f"{PREFIX}ARCH-SIZE-QUANT, as {PREFIX}1b-Q4_K_M")
    return SynthSource(shape(arch or "llama", size), quant)


def tensors(shape: Shape, mix: QuantMix, seed: int) -> list[tuple]:
    """Rows for ``write_gguf``."""
    pools, table = Pools(seed), []
    for index, (name, dimensions, role) in enumerate(tensor_list(shape)):
        type_ = mix.type_of(name, dimensions, shape.n_layer)
        table.append((name, type_, dimensions, TensorBytes(type_, dimensions, role, index, pools)))
    return table


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
