"""Qwen 3: Qwen 2 without biases, with an RMS norm on each head of queries and keys before the rotation.

Source: Yang et al., arXiv 2505.09388.
"""

from __future__ import annotations

import math

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import gated_mlp, output_head, self_attention
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    rope = g.rope_table("rope", h.rope_table())

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    for i in range(h.n_layer):
        attn = self_attention(g, h, i, g.rms_norm(x, f"blk.{i}.attn_norm", h.rms_eps),
                              rope=rope, style="neox", scale=1.0 / math.sqrt(h.head_dim), qk_norm=True)
        if i == h.n_layer - 1:
            x = g.select_outputs(x)
        x = g.add(attn, x)
        x = g.add(gated_mlp(g, h, i, g.rms_norm(x, f"blk.{i}.ffn_norm", h.rms_eps), "silu"), x)
    return g.finish(output_head(g, h, x), h.n_embd)
