"""Gemma: Llama's layer with scaled embeddings and a GELU gate. Source: Gemma Team, arXiv 2403.08295."""

from __future__ import annotations

import math

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import gated_mlp, output_head, rms_norm, self_attention, sequential_layers
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    rope = g.rope_table("rope", h.rope_table())

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd, scale=math.sqrt(h.n_embd))
    x = sequential_layers(
        g, h, x, rms_norm(g, h),
        attention=lambda i, x: self_attention(g, h, i, x, rope=rope, style="neox"),
        mlp=lambda i, x: gated_mlp(g, h, i, x, "gelu"))
    return g.finish(output_head(g, h, x), h.n_embd)
