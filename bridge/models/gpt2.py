"""GPT-2: learned embeddings of positions, layer norms before each half, a plain MLP.

Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).
"""

from __future__ import annotations

from bridge.graph import Graph, GraphBuilder
from bridge.models.blocks import layer_norm, output_head, plain_mlp, self_attention, sequential_layers
from bridge.models.hparams import HParams


def build(h: HParams, g: GraphBuilder) -> Graph:
    g.require_biases("attn_norm", "ffn_norm", "output_norm", "attn_qkv", "attn_output", "ffn_up", "ffn_down")
    norm = layer_norm(g, h)

    x = g.embed("token_embd.weight", h.n_vocab, h.n_embd)
    x = g.add(x, g.embed_positions("position_embd.weight", h.n_ctx_train, h.n_embd))
    x = sequential_layers(
        g, h, x, norm,
        attention=lambda i, x: self_attention(g, h, i, x, rope=None),
        mlp=lambda i, x: plain_mlp(g, h, i, x, "gelu"))
    return g.finish(output_head(g, h, x, by=norm), h.n_embd)
