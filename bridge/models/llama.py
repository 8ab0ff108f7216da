"""Llama 1-3 and everything trained in its shape: Mistral, Mixtral, SmolLM, TinyLlama, Yi, InternLM 2, ERNIE 4.5, …

RMS norm before each half, rotary attention with shared key/value heads, SwiGLU; optional biases, optional rope factors
(Llama 3's ``rope_freqs``, or LongRoPE's long and short ones, chosen by the context size); with Mixtral's router, the
MLP is a mixture of experts (Jiang et al., arXiv 2401.04088). Source: Touvron et al., arXiv 2302.13971.
"""

from __future__ import annotations

from bridge.errors import ModelError
from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import (
    gated_mlp, mixture_of_experts, output_head, rms_norm, rope_factors, self_attention, sequential_layers,
)
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    if not h.n_rot == h.head_dim == h.head_dim_v:
        raise ModelError(f"{h.architecture} needs heads of one width that are rotated whole; this file has "
                         f"rope.dimension_count {h.n_rot}, key length {h.head_dim} and value length {h.head_dim_v}")
    rope = g.rope_table("rope", h.rope_table(factors_tensor=rope_factors(h, g)))

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, rms_norm(g, h),
        attention=lambda i, x: self_attention(g, h, i, x, rope=rope, style="norm"),
        mlp=lambda i, x: mlp_or_experts(g, h, i, x))
    return g.finish(output_head(g, h, x, may_be_tied=h.architecture != "internlm2"), h.n_embd)


def mlp_or_experts(g: GraphBuilder, h: HParams, i: int, x: Node) -> Node:
    if h.n_expert and g.has(f"blk.{i}.ffn_gate_inp.weight"):
        return mixture_of_experts(g, h, i, x, "silu", normalise=True)
    return gated_mlp(g, h, i, x, "silu")
