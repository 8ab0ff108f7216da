"""EXAONE 4: norms after each half instead of before, and on each head of queries and keys.

The 32B model, told by its 64 layers, sees a window in three layers of four and rotates only there. Source: LG AI Research,
arXiv 2507.11407; window and period are llama.cpp's.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import gated_mlp, output_head, rms_norm, rope_factors, self_attention, sequential_layers
from bridge.models.hparams import HParams

LAYERS_32B = 64
WINDOW_32B = 4096


def build(h: HParams, g: GraphBuilder) -> Graph:
    h = h.without_predictors()
    has_windows = h.n_layer == LAYERS_32B
    window = h.keys.integer("attention.sliding_window", WINDOW_32B, low=0) if has_windows else 0
    windowed = h.keys.windowed(h.n_layer, default_period=4) if has_windows else (False,) * h.n_layer
    rope = g.rope_table("rope", h.rope_table(factors_tensor=rope_factors(h, g)))

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, rms_norm(g, h), before=(), after=("post_attention_norm", "post_ffw_norm"),
        attention=lambda i, x: self_attention(g, h, i, x, rope=rope if windowed[i] or not has_windows else None,
                                              style="neox", qk_norm=True, window=window if windowed[i] else 0),
        mlp=lambda i, x: gated_mlp(g, h, i, x, "silu"))
    return g.finish(output_head(g, h, x), h.n_embd)
