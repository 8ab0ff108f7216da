"""Phi 1, 1.5 and 2: attention and a plain MLP side by side after one layer norm, heads rotated in part, biases.

Source: Li et al., arXiv 2309.05463; the shape is that of GPT-J (Wang & Komatsuzaki, 2021).
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import layer_norm, output_head, parallel_layer, plain_mlp, self_attention
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    g.require_biases("attn_norm", "output_norm", "attn_output", "ffn_up", "ffn_down", "output")
    rope, norm = g.rope_table("rope", h.rope_table()), layer_norm(g, h)

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    for i in range(h.n_layer):
        y = norm(x, f"blk.{i}.attn_norm")
        attention = self_attention(g, h, i, y, rope=rope, style="neox")
        x = parallel_layer(g, h, i, x, y, attention, lambda i, y: plain_mlp(g, h, i, y, "gelu"))
    return g.finish(output_head(g, h, x, by=norm, may_be_tied=False), h.n_embd)
