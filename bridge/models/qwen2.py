"""Qwen 2 and 2.5: Llama's layer with biases on queries, keys and values, and half-split rotation.

Source: Yang et al., arXiv 2407.10671.
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
                              rope=rope, style="neox", scale=1.0 / math.sqrt(h.head_dim))
        if i == h.n_layer - 1:
            x = g.select_outputs(x)
        x = g.add(attn, x)
        x = g.add(gated_mlp(g, h, i, g.rms_norm(x, f"blk.{i}.ffn_norm", h.rms_eps), "silu"), x)
    return g.finish(output_head(g, h, x), h.n_embd)
