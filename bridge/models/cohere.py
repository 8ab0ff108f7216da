"""Command R and Command R7B: attention and a gated MLP side by side after one layer norm without bias, scaled logits.

The largest Command R normalises queries and keys, each head with weights of its own. R7B ("cohere2"): three layers of four
see a sliding window; the fourth sees everything and does not rotate. Source: Cohere, "Command A", arXiv 2504.00698.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import gated_mlp, layer_norm, output_head, parallel_layer, self_attention
from bridge.models.hparams import HParams

LAYERS_WITH_QK_NORM = 64


def build(h: HParams, g: GraphBuilder) -> Graph:
    has_windows = h.architecture == "cohere2"
    window = h.keys.integer("attention.sliding_window", low=1) if has_windows else 0
    windowed = h.keys.windowed(h.n_layer, default_period=4) if has_windows else (False,) * h.n_layer
    logit_scale = h.keys.number("logit_scale", None if has_windows else 0.0)
    rope, norm = g.rope_table("rope", h.rope_table()), layer_norm(g, h)
    qk_norm = False
    if not has_windows and h.n_layer >= LAYERS_WITH_QK_NORM:
        def qk_norm(x, name):
            return g.layer_norm(x, name, h.norm_eps, group=h.head_dim, per_head=True)

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    for i in range(h.n_layer):
        y = norm(x, f"blk.{i}.attn_norm")
        attention = self_attention(g, h, i, y, rope=rope if windowed[i] or not has_windows else None, style="norm",
                                   qk_norm=qk_norm, window=window if windowed[i] else 0)
        x = parallel_layer(g, h, i, x, y, attention, lambda i, y: gated_mlp(g, h, i, y, "silu"))
    return g.finish(output_head(g, h, x, by=norm, scale=logit_scale or 1.0), h.n_embd)
