"""Qwen 3: Qwen 2 without biases, with an RMS norm on each head of queries and keys before the rotation.

Source: Yang et al., arXiv 2505.09388.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import gated_mlp, output_head, rms_norm, self_attention, sequential_layers
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    rope = g.rope_table("rope", h.rope_table())

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, rms_norm(g, h),
        attention=lambda i, x: self_attention(g, h, i, x, rope=rope, style="neox", qk_norm=True),
        mlp=lambda i, x: gated_mlp(g, h, i, x, "silu"))
    return g.finish(output_head(g, h, x), h.n_embd)
