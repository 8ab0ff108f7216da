"""Hunyuan dense: Llama's layer with an RMS norm on each head of queries and keys, after the rotation.

``rope.scaling.alpha`` raises the base of the rotation (NTK-aware scaling). Source: Tencent Hunyuan, "Hunyuan-7B-Instruct";
the formula is llama.cpp's.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import (
    attended, gated_mlp, head_norm, output_head, projections, rms_norm, rope_factors, sequential_layers,
)
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    table = h.rope_table(factors_tensor=rope_factors(h, g))
    alpha = h.keys.number("rope.scaling.alpha", 0.0)
    if alpha > 0.0:
        table = replace(table, freq_base=table.freq_base * alpha ** (h.head_dim / (h.head_dim - 2)))
    rope, norm = g.rope_table("rope", table), head_norm(g, h)

    def attention(i: int, x: Node) -> Node:
        q, k, v = projections(g, h, i, x)
        q, k = (norm(g.rope(part, rope, h.head_dim, "neox"), f"blk.{i}.attn_{letter}_norm")
                for part, letter in ((q, "q"), (k, "k")))
        return attended(g, h, i, q, k, v)

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(g, h, x, rms_norm(g, h), attention, lambda i, x: gated_mlp(g, h, i, x, "silu"))
    return g.finish(output_head(g, h, x), h.n_embd)
