"""Phi 3 and 4: Llama's layer with queries, keys and values in one tensor, gate and up in another; long contexts by LongRoPE.

``attention.sliding_window`` is not used, as in llama.cpp. Sources: Abdin et al., arXiv 2404.14219; Ding et al., arXiv
2402.13753.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import fused_gated_mlp, output_head, rms_norm, rope_factors, self_attention, sequential_layers
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    rope = g.rope_table("rope", h.rope_table(factors_tensor=rope_factors(h, g)))

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, rms_norm(g, h),
        attention=lambda i, x: self_attention(g, h, i, x, rope=rope, style="neox"),
        mlp=lambda i, x: fused_gated_mlp(g, h, i, x, "silu"))
    return g.finish(output_head(g, h, x), h.n_embd)
