"""StarCoder 2 and Nemotron: layer norms before each half, rotary attention, a plain MLP (GELU, and squared ReLU).

Sources: Lozhkov et al., arXiv 2402.19173; Parmar et al., arXiv 2402.16819.
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import layer_norm, output_head, plain_mlp, self_attention, sequential_layers
from bridge.models.hparams import HParams

ACTIVATION = {"starcoder2": "gelu", "nemotron": "relu2"}
BIASES = {"starcoder2": ("attn_norm", "ffn_norm", "output_norm", "attn_output", "ffn_up", "ffn_down"),
          "nemotron": ("attn_norm", "ffn_norm", "output_norm")}


def build(h: HParams, g: GraphBuilder) -> Graph:
    g.require_biases(*BIASES[h.architecture])
    rope, norm = g.rope_table("rope", h.rope_table()), layer_norm(g, h)

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = sequential_layers(
        g, h, x, norm,
        attention=lambda i, x: self_attention(g, h, i, x, rope=rope, style="neox"),
        mlp=lambda i, x: plain_mlp(g, h, i, x, ACTIVATION[h.architecture]))
    return g.finish(output_head(g, h, x, by=norm, may_be_tied=h.architecture != "nemotron"), h.n_embd)
