"""LFM2: most layers are a short gated convolution, some attention; with experts, LFM2 MoE.

A layer without key/value heads is a convolution: its input is projected to a gate before it, a gate after it and what is
convolved. Source: Liquid AI, arXiv 2511.23404; names, shapes and defaults are llama.cpp's.
"""

from __future__ import annotations

import math

from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import gated_mlp, output_head, self_attention
from bridge.models.hparams import HParams

RECURRENT_LAYERS = "some"
MIN_TAPS = 2


def build(h: HParams, g: GraphBuilder) -> Graph:
    taps = h.keys.integer("shortconv.l_cache", low=MIN_TAPS)
    window = h.keys.integer("attention.sliding_window", 0, low=0)
    rope = g.rope_table("rope", h.rope_table())

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    for i in range(h.n_layer):
        y = g.rms_norm(x, f"blk.{i}.attn_norm", h.rms_eps)
        if h.n_head_kv[i]:
            y = self_attention(g, h, i, y, rope=rope, style="neox", scale=1.0 / math.sqrt(h.head_dim), qk_norm=True,
                               window=window)
        else:
            y = _short_convolution(g, h, i, y, taps)
        if i == h.n_layer - 1:
            x = g.select_outputs(x)
        x = g.add(y, x)
        x = g.add(gated_mlp(g, h, i, g.rms_norm(x, f"blk.{i}.ffn_norm", h.rms_eps), "silu"), x)
    return g.finish(output_head(g, h, x, norm="token_embd_norm"), h.n_embd)


def _short_convolution(g: GraphBuilder, h: HParams, i: int, x: Node, taps: int) -> Node:
    name = f"blk.{i}.shortconv"
    parts = g.matmul(x, f"{name}.in_proj", 3 * h.n_embd)
    before, after, x = (g.columns(parts, j * h.n_embd, h.n_embd) for j in range(3))
    y = g.mul(after, g.conv(g.mul(before, x), f"{name}.conv", taps))
    if i == h.n_layer - 1:
        y = g.select_outputs(y)
    return g.matmul(y, f"{name}.out_proj", h.n_embd)
