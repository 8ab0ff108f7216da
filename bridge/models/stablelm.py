"""StableLM: layer norms, heads rotated in part; halves in sequence if there is a norm before the MLP, else in parallel.

Larger ones normalise queries and keys, each head with weights of its own. Source: Bellagente et al., arXiv 2402.17834.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import gated_mlp, layer_norm, output_head, parallel_layer, self_attention
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    g.require_biases("attn_norm", "output_norm")
    rope, norm = g.rope_table("rope", h.rope_table()), layer_norm(g, h)

    def qk_norm(x: Node, name: str) -> Node:
        return g.layer_norm(x, name, h.norm_eps, group=h.head_dim, per_head=True) if g.has(f"{name}.weight") else x

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    for i in range(h.n_layer):
        y = norm(x, f"blk.{i}.attn_norm")
        attention = self_attention(g, h, i, y, rope=rope, style="neox", qk_norm=qk_norm)
        if not g.has(f"blk.{i}.ffn_norm.weight"):
            x = parallel_layer(g, h, i, x, y, attention, lambda i, y: gated_mlp(g, h, i, y, "silu"))
            continue
        if i == h.n_layer - 1:
            x = g.select_outputs(x)
        x = g.add(attention, x)
        x = g.add(gated_mlp(g, h, i, norm(x, f"blk.{i}.ffn_norm"), "silu"), x)
    return g.finish(output_head(g, h, x, by=norm, may_be_tied=False), h.n_embd)
