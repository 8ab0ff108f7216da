"""ModernBERT: an encoder with rotated positions, a norm before each half, gated MLPs, and windows in two layers of three.

The first layer has no norm before its attention, because the embedding has one. Source: Warner et al., arXiv 2412.13663;
defaults of missing keys are llama.cpp's.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder, Node, RopeTable
from bridge.models.blocks import fused_gated_mlp, self_attention, sequential_layers
from bridge.models.hparams import HParams

SYMMETRIC = True
RANK_POOLING = "mean"
ROPE_BASE_SWA = 10000.0
GATES = {"gelu": "gelu", "geglu": "gelu", "silu": "silu", "swish": "silu", "swiglu": "silu", "reglu": "relu"}
"""Activations by the names files give them; any other is the first."""


def build(h: HParams, g: GraphBuilder) -> Graph:
    window = h.keys.integer("attention.sliding_window", 0, low=0)
    windowed = h.keys.windowed(h.n_layer, 3, full_first=True) if window else (False,) * h.n_layer
    gate = GATES.get(h.keys.string("hidden_activation", "gelu"), "gelu")
    full = g.rope_table("rope", h.rope_table())
    swa = g.rope_table("rope_swa", RopeTable(h.n_rot, h.rope_base("rope.freq_base_swa", ROPE_BASE_SWA)))

    def norm(x: Node, name: str) -> Node:
        is_missing = name == "blk.0.attn_norm" and not g.has(f"{name}.weight")
        return x if is_missing else g.layer_norm(x, name, h.norm_eps)

    x = norm(g.embed("token_embd.weight", h.n_vocab, h.n_embd), "token_embd_norm")
    x = sequential_layers(
        g, h, x, norm,
        attention=lambda i, x: self_attention(g, h, i, x, rope=swa if windowed[i] else full,
                                              window=window if windowed[i] else 0),
        mlp=lambda i, x: fused_gated_mlp(g, h, i, x, gate))
    return g.finish_encoder(norm(x, "output_norm"), h.n_vocab)
