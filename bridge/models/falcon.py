"""Falcon: attention with few key/value heads and a plain MLP side by side; larger ones normalise for each on its own.

Source: Almazrouei et al., arXiv 2311.16867.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import layer_norm, output_head, parallel_layer, plain_mlp, self_attention
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    g.require_biases("attn_norm", "output_norm")
    rope, norm = g.rope_table("rope", h.rope_table()), layer_norm(g, h)

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    for i in range(h.n_layer):
        y = norm(x, f"blk.{i}.attn_norm")
        before = norm(x, f"blk.{i}.attn_norm_2") if g.has(f"blk.{i}.attn_norm_2.weight") else y
        attention = self_attention(g, h, i, before, rope=rope, style="neox")
        x = parallel_layer(g, h, i, x, y, attention, lambda i, y: plain_mlp(g, h, i, y, "gelu"))
    return g.finish(output_head(g, h, x, by=norm), h.n_embd)
