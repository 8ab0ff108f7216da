"""Gemma 3 (text): Gemma 2 with normalised queries and keys instead of soft-capped scores, and two rope bases.

Five layers of six see a sliding window and rotate with base 10000; the sixth sees everything with the file's base.
Source: Gemma Team, arXiv 2503.19786.
"""

from __future__ import annotations

import math

from bridge.graph import Graph, GraphBuilder, Node, RopeTable
from bridge.models.blocks import gated_mlp, output_head, rms_norm, self_attention, sequential_layers
from bridge.models.gemma2 import attention_scale
from bridge.models.hparams import HParams

LAYERS_27B = 62
ROPE_BASE_SWA = 10000.0


def build(h: HParams, g: GraphBuilder) -> Graph:
    logits = output_head(g, h, hidden_states(h, g))
    cap = h.keys.number("final_logit_softcapping", 0.0)
    return g.finish(g.softcap(logits, cap) if cap else logits, h.n_embd)


def hidden_states(h: HParams, g: GraphBuilder) -> Node:
    """The layers, without the norm and the head behind them."""
    window = h.keys.integer("attention.sliding_window", 0, low=0)
    windowed = h.keys.windowed(h.n_layer, default_period=6) if window else (False,) * h.n_layer
    scale = attention_scale(h, LAYERS_27B)
    full = g.rope_table("rope", h.rope_table())
    swa = g.rope_table("rope_swa", RopeTable(h.n_rot, h.rope_base("rope.freq_base_swa", ROPE_BASE_SWA)))

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd, scale=math.sqrt(h.n_embd))
    return sequential_layers(
        g, h, x, rms_norm(g, h), after=("post_attention_norm", "post_ffw_norm"),
        attention=lambda i, x: self_attention(g, h, i, x, rope=swa if windowed[i] else full, style="neox", scale=scale,
                                              qk_norm=True, window=window if windowed[i] else 0),
        mlp=lambda i, x: gated_mlp(g, h, i, x, "gelu"))
