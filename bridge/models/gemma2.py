"""Gemma 2: scaled embeddings, norms before and after each half, alternating sliding windows, soft-capped scores and logits.

Source: Gemma Team, arXiv 2408.00118. The defaults for keys a file may lack (window 4096, every second layer windowed,
caps 50 and 30) and the 27B model's attention scale are llama.cpp's.
"""

from __future__ import annotations

import math

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import gated_mlp, output_head, rms_norm, self_attention, sequential_layers
from bridge.models.hparams import HParams

LAYERS_27B = 46


def build(h: HParams, g: GraphBuilder) -> Graph:
    window = h.keys.integer("attention.sliding_window", 4096, low=0)
    windowed = h.keys.windowed(h.n_layer, default_period=2)
    softcap = h.keys.number("attn_logit_softcapping", 50.0)
    scale = attention_scale(h, LAYERS_27B)
    full = g.rope_table("rope", h.rope_table())
    swa = g.rope_table("rope_swa", h.rope_table(base_key="rope.freq_base_swa"))

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd, scale=math.sqrt(h.n_embd))
    x = sequential_layers(
        g, h, x, rms_norm(g, h), after=("post_attention_norm", "post_ffw_norm"),
        attention=lambda i, x: self_attention(g, h, i, x, rope=swa if windowed[i] else full, style="neox", scale=scale,
                                              softcap=softcap, window=window if windowed[i] else 0),
        mlp=lambda i, x: gated_mlp(g, h, i, x, "gelu"))
    logits = output_head(g, h, x)
    return g.finish(g.softcap(logits, h.keys.number("final_logit_softcapping", 30.0)), h.n_embd)


def attention_scale(h: HParams, layers_27b: int) -> float:
    """1/sqrt(head width); in the 27B models of Gemma 2 and 3, told by their layer count, 1/sqrt(n_embd / n_head)."""
    return 1.0 / math.sqrt(h.n_embd // h.n_head[0] if h.n_layer == layers_27b else h.head_dim)
