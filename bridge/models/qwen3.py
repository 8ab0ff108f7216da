"""Qwen 3: Qwen 2 without biases, with an RMS norm on each head of queries and keys before the rotation.

With experts (Qwen 3 MoE) there is no shared one. Source: Yang et al., arXiv 2505.09388.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import (
    gated_mlp, mixture_of_experts, output_head, rms_norm, self_attention, sequential_layers,
)
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    rope, has_experts = g.rope_table("rope", h.rope_table()), h.architecture == "qwen3moe"
    if has_experts:
        h.require_experts()

    def mlp(i: int, x: Node) -> Node:
        if not has_experts:
            return gated_mlp(g, h, i, x, "silu")
        return mixture_of_experts(g, h, i, x, "silu", normalise=True, n_ff=h.n_ff_expert(i, h.n_ff[i] // h.n_expert_used))

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, rms_norm(g, h), mlp=mlp,
        attention=lambda i, x: self_attention(g, h, i, x, rope=rope, style="neox", qk_norm=True))
    return g.finish(output_head(g, h, x), h.n_embd)
