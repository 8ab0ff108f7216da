"""Granite 3 and MiniCPM: Llama's layer with scaled embeddings, residual branches, attention and logits.

With experts (Granite 3 MoE), an optional shared expert sees every token. Sources: IBM Granite team, "Granite 3.0 Language
Models"; Hu et al., arXiv 2404.06395. MiniCPM's files may lack the scales; the defaults are llama.cpp's.
"""

from __future__ import annotations

import math

from bridge.errors import ModelError
from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import (
    Half, gated_mlp, mixture_of_experts, output_head, rms_norm, rope_factors, self_attention, sequential_layers,
    shared_expert,
)
from bridge.models.hparams import HParams

MINICPM_EMBEDDING_SCALE = 12.0
MINICPM_DEPTH_SCALE = 1.4
MINICPM_BASE_WIDTH = 256


def build(h: HParams, g: GraphBuilder, without_heads: Half | None = None) -> Graph:
    """``without_heads`` stands for attention in layers without key/value heads."""
    minicpm = h.architecture == "minicpm"
    embedding_scale = h.keys.number("embedding_scale", MINICPM_EMBEDDING_SCALE if minicpm else 0.0)
    residual_scale = h.keys.number("residual_scale", MINICPM_DEPTH_SCALE / math.sqrt(h.n_layer) if minicpm else 0.0)
    default = MINICPM_BASE_WIDTH / h.n_embd if minicpm else 1.0 if without_heads else None
    logit_scale = h.keys.number("logit_scale", default)
    if logit_scale == 0.0:
        raise ModelError(f"metadata key {h.architecture}.logit_scale is 0; logits are divided by it")
    is_rotated = minicpm or h.keys.boolean("rope.scaling.finetuned", True)
    rope = g.rope_table("rope", h.rope_table(factors_tensor=rope_factors(h, g))) if is_rotated else None
    scale = None if minicpm else h.keys.number("attention.scale", 0.0)

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd, scale=embedding_scale or 1.0)
    x = sequential_layers(
        g, h, x, rms_norm(g, h), residual_scale=residual_scale or 1.0,
        attention=lambda i, x: (self_attention(g, h, i, x, rope=rope, style="norm", scale=scale) if h.n_head_kv[i]
                                else without_heads(i, x)),
        mlp=lambda i, x: granite_mlp(g, h, i, x))
    return g.finish(output_head(g, h, x, scale=1.0 / logit_scale), h.n_embd)


def granite_mlp(g: GraphBuilder, h: HParams, i: int, x: Node) -> Node:
    """The MLP of layer ``i``, or its experts and the shared one beside them."""
    if not h.n_expert:
        return gated_mlp(g, h, i, x, "silu")
    y = mixture_of_experts(g, h, i, x, "silu", normalise=True)
    n_shared = h.keys.integer("expert_shared_feed_forward_length", 0, low=0)
    return g.add(y, shared_expert(g, h, i, x, "silu", n_shared)) if n_shared else y
