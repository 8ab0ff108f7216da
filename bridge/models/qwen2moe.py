"""Qwen 2 MoE: Qwen 2 with experts that are not weighed against each other, and a shared one behind a gate of its own.

Source: Qwen Team, "Qwen1.5-MoE"; Yang et al., arXiv 2407.10671.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder, Node
from bridge.models.blocks import (
    mixture_of_experts, output_head, rms_norm, self_attention, sequential_layers, shared_expert,
)
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    h.require_experts()
    rope = g.rope_table("rope", h.rope_table())

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, rms_norm(g, h),
        attention=lambda i, x: self_attention(g, h, i, x, rope=rope, style="neox"),
        mlp=lambda i, x: experts_beside_gated(g, h, i, x, normalise=False))
    return g.finish(output_head(g, h, x, may_be_tied=False), h.n_embd)


def experts_beside_gated(g: GraphBuilder, h: HParams, i: int, x: Node, *, normalise: bool) -> Node:
    """The experts of layer ``i`` and a shared one that is multiplied by the sigmoid of a product with x."""
    y = mixture_of_experts(g, h, i, x, "silu", normalise=normalise, n_ff=h.n_ff_expert(i, h.n_ff[i] // h.n_expert_used))
    n_shared = h.keys.integer("expert_shared_feed_forward_length", 0, low=0) or h.n_ff[i]
    gate = g.activate(g.matmul(x, f"blk.{i}.ffn_gate_inp_shexp", 1), "sigmoid")
    return g.add(y, g.mul(shared_expert(g, h, i, x, "silu", n_shared), gate))
