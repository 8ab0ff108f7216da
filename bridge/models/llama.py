"""Llama 1-3 and everything trained in its shape: Mistral, Mixtral, SmolLM, TinyLlama, Yi, …

RMS norm before each half, rotary attention with shared key/value heads, SwiGLU; optional biases, optional rope factors
(Llama 3's ``rope_freqs``, or LongRoPE's long and short ones, chosen by the context size); with Mixtral's router, the MLP is
a mixture of experts (Jiang et al., arXiv 2401.04088). Source: Touvron et al., arXiv 2302.13971.
"""

from __future__ import annotations

import math

from bridge.errors import ModelError
from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import gated_mlp, mixture_of_experts, output_head, self_attention
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    if not h.n_rot == h.head_dim == h.head_dim_v:
        raise ModelError(f"llama needs heads of one width that are rotated whole; this file has rope.dimension_count "
                         f"{h.n_rot}, key length {h.head_dim} and value length {h.head_dim_v}")
    rope = g.rope_table("rope", h.rope_table(factors_tensor=_rope_factors(h, g)))

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    for i in range(h.n_layer):
        attn = self_attention(g, h, i, g.rms_norm(x, f"blk.{i}.attn_norm", h.rms_eps),
                              rope=rope, style="norm", scale=1.0 / math.sqrt(h.head_dim))
        if i == h.n_layer - 1:
            x = g.select_outputs(x)
        x = g.add(attn, x)
        y = g.rms_norm(x, f"blk.{i}.ffn_norm", h.rms_eps)
        if h.n_expert and g.has(f"blk.{i}.ffn_gate_inp.weight"):
            y = mixture_of_experts(g, h, i, y, "silu", normalise=True)
        else:
            y = gated_mlp(g, h, i, y, "silu")
        x = g.add(y, x)
    return g.finish(output_head(g, h, x), h.n_embd)


def _rope_factors(h: HParams, g: GraphBuilder) -> str | None:
    if h.keys.string("rope.scaling.type", "linear") == "longrope":
        name = "rope_factors_long.weight" if h.n_ctx > h.n_ctx_orig else "rope_factors_short.weight"
    else:
        name = "rope_freqs.weight"
    return name if g.has(name) else None
