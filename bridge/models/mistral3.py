"""Mistral 3: Llama's layer with YaRN, and queries that grow with the position beyond the original context.

Source: Mistral AI, "Ministral 3" (arXiv 2601.08584); the temperature is that of Llama 4.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import attended, output_head, projections, rms_norm, rope_factors, sequential_layers
from bridge.models.hparams import HParams
from bridge.models.llama import mlp_or_experts


def build(h: HParams, g: GraphBuilder) -> Graph:
    keys = h.keys
    table = h.rope_table(factors_tensor=rope_factors(h, g),
                         yarn_multipliers=(1.0, keys.number("rope.scaling.yarn_log_multiplier", 0.0, low=0.0)))
    rope = g.rope_table("rope", replace(
        table, beta_fast=keys.number("rope.scaling.yarn_beta_fast", table.beta_fast, above=0.0),
        beta_slow=keys.number("rope.scaling.yarn_beta_slow", table.beta_slow, above=0.0)))
    temperature = keys.number("attention.temperature_scale", 0.0)

    def attention(i: int, x: Node) -> Node:
        q, k, v = projections(g, h, i, x)
        q, k = (g.rope(part, rope, h.head_dim, "norm") for part in (q, k))
        return attended(g, h, i, g.scale_by_position(q, temperature, h.n_ctx_orig) if temperature else q, k, v)

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(g, h, x, rms_norm(g, h), attention, lambda i, x: mlp_or_experts(g, h, i, x))
    return g.finish(output_head(g, h, x), h.n_embd)
